"""The names of all settings: those of RocketMQ 5.3.3, whether they have an effect here or not, and ours."""

from typing import Final

STORE_KEYS: Final = frozenset(
    """
    accessMessageInMemoryHotRatio accessMessageInMemoryMaxRatio allAckInSyncStateSet
    asyncLearner autoMessageVersionOnTopicLen batchDispatchRequestThreadPoolNums
    bitMapLengthConsumeQueueExt bottomMostCompressionTypeForConsumeQueueStore brokerRole
    checkCRCOnRecover cleanFileForciblyEnable cleanResourceInterval
    cleanRocksDBDirtyCQIntervalMin cleanSwapedMapInterval coldDataFlowControlEnable
    coldDataScanEnable combineAssignOffsetCQType combineCQEnableCheckSelf
    combineCQLoadingCQTypes combineCQMaxExtraSearchCommitLogFiles combineCQPreferCQType
    commitCommitLogLeastPages commitCommitLogThoroughInterval commitIntervalCommitLog
    commitLogForceSwapMapInterval commitLogSwapMapInterval commitLogSwapMapReserveFileNum
    compactionCqMappedFileSize compactionMappedFileSize compactionScheduleInternal
    compactionThreadNum correctLogicMinOffsetForceInterval correctLogicMinOffsetSleepInterval
    dataReadAheadEnable debugLockEnable defaultQueryMaxNum deleteCommitLogFilesInterval
    deleteConsumeQueueFilesInterval deleteFileBatchMax deleteWhen
    destroyMapedFileIntervalForcibly disappearTimeAfterStart diskFallRecorded
    diskMaxUsedSpaceRatio diskSpaceCleanForciblyRatio diskSpaceWarningLevelRatio
    dispatchCqCacheNum dispatchCqThreads dispatchFromSenderThread dLegerGroup dLegerPeers
    dLegerSelfId duplicationEnable enableAcceleratedRecovery enableAsyncReput
    enableAutoInSyncReplicas enableBatchPush enableBuildConsumeQueueConcurrently
    enableCleanExpiredOffset enableCompaction enableConsumeQueueExt enabledAppendPropCRC
    enableDLegerCommitLog enableLmq enableLogConsumeQueueRepeatedlyBuildWhenRecover
    enableMultiDispatch enableRocksDBLog enableRunningFlagsInFlush enableScheduleAsyncDeliver
    enableScheduleMessageStats fastFailIfNoBufferInStorePool fileReservedTime
    flushCommitLogLeastPages flushCommitLogThoroughInterval flushCommitLogTimed
    flushConsumeQueueLeastPages flushConsumeQueueThoroughInterval flushDelayOffsetInterval
    flushDiskType flushIntervalCommitLog flushIntervalConsumeQueue
    flushLeastPagesWhenWarmMapedFile forceVerifyPropCRC haFlowControlEnable
    haHousekeepingInterval haListenPort haMasterAddress haMaxGapNotInSync
    haMaxTimeSlaveNotCatchup haSendHeartbeatInterval haTransferBatchSize inSyncReplicas
    logicalDiskSpaceCleanForciblyThreshold logicQueueForceSwapMapInterval
    logicQueueSwapMapInterval logicQueueSwapMapReserveFileNum mappedFileSizeCommitLog
    mappedFileSizeConsumeQueue mappedFileSizeConsumeQueueExt mappedFileSizeTimerLog
    mappedFileSwapEnable mapperFileSizeBatchConsumeQueue maxAsyncPutMessageRequests
    maxBatchDeleteFilesNum maxChecksumRange maxConsumeQueueScan maxFilterMessageSize
    maxHashSlotNum maxHaTransferByteInSecond maxIndexNum maxLmqConsumeQueueNum maxMessageSize
    maxMsgsNumBatch maxOffsetMapSize maxRecoveryCommitlogFiles maxSlaveResendLength
    maxTopicLength maxTransferBytesOnMessageInDisk maxTransferBytesOnMessageInMemory
    maxTransferCountOnMessageInDisk maxTransferCountOnMessageInMemory memTableFlushIntervalMs
    messageDelayLevel messageIndexEnable messageIndexSafe minInSyncReplicas offsetCheckInSlave
    osPageCacheBusyTimeOutMills preferredLeaderId pullBatchMaxMessageCount
    putConsumeQueueDataByFileChannel putMessageTimeout putMsgIndexHightWater
    readOnlyCommitLogStorePaths readUnCommitted realTimePersistRocksDBConfig
    recheckReputOffsetFromCq redeleteHangedFileInterval replicasPerDiskPartition
    rocksdbCompressionType rocksdbCQDoubleWriteEnable rocksdbFlushWalFrequency
    rocksdbWalFileRollingThreshold sampleCountThreshold sampleSteps
    scheduleAsyncDeliverMaxPendingLimit scheduleAsyncDeliverMaxResendNum2Blocked
    searchBcqByCacheEnable slaveTimeout spinLockCollisionRetreatOptimalDegree
    statRocksDBCQIntervalSec storePathBrokerIdentity storePathCommitLog
    storePathDLedgerCommitLog storePathEpochFile storePathRootDir storeType syncFlushTimeout
    syncFromLastFile syncMasterFlushOffsetWhenStartup timerCheckMetricsWhen
    timerColdDataCheckIntervalMs timerCongestNumEachSlot timerEnableCheckMetrics
    timerEnableDisruptor timerEnableRetryUntilSuccess timerFlushIntervalMs
    timerGetMessageThreadNum timerInterceptDelayLevel timerMaxDelaySec timerMetricSmallThreshold
    timerPrecisionMs timerProgressLogIntervalMs timerPutMessageThreadNum timerRollWindowSlot
    timerSkipUnknownError timerStopDequeue timerStopEnqueue timerWarmEnable timerWheelEnable
    topicQueueLockNum totalReplicas transientStorePoolEnable transientStorePoolSize
    travelCqFileNumWhenGetMessage useABSLock useReentrantLockWhenPutMessage
    wakeCommitWhenPutMessage wakeFlushWhenPutMessage warmMapedFileEnable writeWithoutMmap
""".split()  # noqa: SIM905  (a list of 400 quoted names is no easier to read)
)
"""Keys of a RocketMQ message store."""

OTHER_KEYS: Final = frozenset(
    """
    accountStatsEnable accountStatsPrintZeroValues ackMessageThreadPoolNums
    ackThreadPoolQueueCapacity aclCacheExpiredSecond aclCacheMaxNum aclCacheRefreshSecond
    aclEnable adminBrokerThreadPoolNums adminBrokerThreadPoolQueueCapacity
    allowRecallWhenBrokerNotWriteable appendAckAsync appendCkAsync asyncSendEnable
    authConfigPath authenticationEnabled authenticationMetadataProvider authenticationProvider
    authenticationStrategy authenticationWhitelist authorizationEnabled
    authorizationMetadataProvider authorizationProvider authorizationStrategy
    authorizationWhitelist autoCreateSubscriptionGroup autoCreateTopicEnable
    autoDeleteUnusedStats bindAddress broadcastOffsetExpireMaxSecond broadcastOffsetExpireSecond
    brokerClusterName brokerConfigPath brokerElectionPriority brokerFastFailureEnable
    brokerHeartbeatInterval brokerId brokerIP1 brokerIP2 brokerName brokerNotActiveTimeoutMillis
    brokerPermission brokerTopicEnable cgColdReadThreshold channelExpiredTimeout
    channelNotActiveInterval checkSyncStateSetPeriod cleanOfflineBrokerInterval
    clearRetryTopicWhenDeleteTopic clientAsyncSemaphoreValue clientCallbackExecutorThreads
    clientChannelMaxIdleTimeSeconds clientCloseSocketIfTimeout
    clientManagerThreadPoolQueueCapacity clientManageThreadPoolNums clientOnewaySemaphoreValue
    clientPooledByteBufAllocatorEnable clientSocketRcvBufSize clientSocketSndBufSize
    clientWorkerThreads clusterName clusterTopicEnable coldCtrStrategyEnable commercialBaseCount
    commercialSizePerMsg compatibleWithOldNameSrv compressedRegister configBlackList
    configManagerVersion configName connectTimeoutMillis consumerFallbehindThreshold
    consumerManagerThreadPoolQueueCapacity consumerManageThreadPoolNums
    consumerOffsetUpdateVersionStep controllerAddr controllerHeartBeatTimeoutMills
    defaultMessageRequestMode defaultPopShareQueueNum defaultTopicQueueNums
    delayOffsetUpdateVersionStep disableCallbackExecutor disableConsumeIfConsumerReadSlowly
    disableNettyWorkerGroup enableBroadcastOffsetStore enableCalcFilterBitMap
    enableConnectionMetrics enableControllerMode enableCreateSysGroup enableDetailStat
    enableFastChannelEventProcess enableLagAndDlqMetrics enableLmqStats
    enableMessageStoreMetrics enableMixedMessageType enableNetWorkFlowControl
    enableNotifyAfterPopOrderLockRelease enableNotifyBeforePopCalculateLag enablePopBatchAck
    enablePopBufferMerge enablePopLog enablePopMessageThreshold enablePopMetrics
    enablePropertyFilter enableReconnectForGoAway enableRegisterProducer enableRemoteEscape
    enableRemotingMetrics enableRequestMetrics enableRetryTopicV2 enableShutdownGracefully
    enableSingleTopicRegister enableSkipLongAwaitingAck enableSlaveActingMaster
    enableSplitMetadata enableSplitRegistration enableStatsMetrics enableTransactionMetrics
    endTransactionPoolQueueCapacity endTransactionThreadPoolNums estimateAccumulation
    expectConsumerNumUseFilter fetchControllerAddrByDnsLookup fetchNamesrvAddrByAddressServer
    fetchNameSrvAddrByDnsLookup fetchNamesrvAddrInterval filterDataCleanTimeSpan
    filterSupportRetry flushConsumerOffsetHistoryInterval flushConsumerOffsetInterval
    forceRegister forwardTimeout globalColdReadThreshold heartbeatThreadPoolNums
    heartbeatThreadPoolQueueCapacity highSpeedMode initAuthenticationUser
    initPopOffsetByCheckMsgInMem innerClientAuthenticationCredentials isBrokerContainer
    isInBrokerContainer isolateLogEnable isScanAvailableNameSrv listenPort litePullMessageEnable
    litePullMessageThreadPoolNums litePullThreadPoolQueueCapacity
    loadBalancePollNameServerInterval loadBalanceProcessorThreadPoolNums
    loadBalanceThreadPoolQueueCapacity lockInStrictMode longPollingEnable
    maxErrorRateOfBloomFilter maxPopPollingSize maxReconnectIntervalTimeSeconds
    maxStatsIdleTimeInMinutes messageStorePlugIn metricGrpcExporterIntervalInMills
    metricGrpcExporterTimeOutInMills metricLoggingExporterIntervalInMills metricsExporterType
    metricsGrpcExporterHeader metricsGrpcExporterTarget metricsInDelta metricsLabel
    metricsOtelCardinalityLimit metricsPromExporterHost metricsPromExporterPort
    migrateAuthFromV1Enabled msgTraceTopicName namesrvAddr notifyConsumerIdsChangedEnable
    popCkMaxBufferSize popCkOffsetMaxQueueSize popCkStayBufferTime popCkStayBufferTimeOut
    popConsumerFSServiceInit popConsumerKVServiceEnable popConsumerKVServiceInit
    popConsumerKVServiceLog popFromRetryProbability popInflightMessageThreshold
    popLongPollingForceNotifyInterval popPollingMapExpireTimeSeconds popPollingMapSize
    popPollingSize popResponseReturnActualRetryTopic popReviveMaxAttemptTimes
    popReviveMaxReturnSizePerRead printChannelGroups printChannelGroupsMinNum
    processReplyMessageThreadPoolNums pullMessageThreadPoolNums pullThreadPoolQueueCapacity
    putMessageFutureThreadPoolNums putThreadPoolQueueCapacity queryMessageThreadPoolNums
    queryThreadPoolQueueCapacity realTimeNotifyConsumerChange recallMessageEnable
    recoverConcurrently recoverThreadPoolNums regionId registerBrokerTimeoutMills
    registerNameServerPeriod rejectPullConsumerEnable rejectTransactionMessage
    replyThreadPoolQueueCapacity retrieveMessageFromPopRetryTopicV1 reviveAckWaitMs
    reviveInterval reviveMaxSlow reviveQueueNum reviveScanTime rocketmqHome
    sendHeartbeatTimeoutMillis sendMessageThreadPoolNums sendThreadPoolQueueCapacity
    serverAsyncSemaphoreValue serverCallbackExecutorThreads serverChannelMaxIdleTimeSeconds
    serverLoadBalancerEnable serverNettyWorkerGroupEnable serverOnewaySemaphoreValue
    serverPooledByteBufAllocatorEnable serverSelectorThreads serverSocketBacklog
    serverSocketRcvBufSize serverSocketSndBufSize serverWorkerThreads shortPollingTimeMills
    shutdownWaitTimeSeconds skipPreOnline skipWhenCKRePutReachMaxTimes slaveReadEnable
    socksProxyConfig splitMetadataSize splitRegistrationSize startAcceptSendRequestTimeStamp
    statefulAuthenticationCacheExpiredSecond statefulAuthenticationCacheMaxNum
    statefulAuthorizationCacheExpiredSecond statefulAuthorizationCacheMaxNum
    storeReplyMessageEnable subscriptionExpiredTimeout syncBrokerMemberGroupPeriod
    syncBrokerMetadataPeriod syncControllerMetadataPeriod traceOn traceTopicEnable
    transactionCheckInterval transactionCheckMax transactionMetricFlushInterval
    transactionOpBatchInterval transactionOpMsgMaxSize transactionTimeOut transferMsgByHeap
    updateNameServerAddrPeriod useEpollNativeSelector usePIDColdCtrStrategy
    userCacheExpiredSecond userCacheMaxNum userCacheRefreshSecond useServerSideResetOffset
    useStaticSubscription useTLS validateSystemTopicWhenUpdateTopic waitTimeMillsInAckQueue
    waitTimeMillsInAdminBrokerQueue waitTimeMillsInHeartbeatQueue waitTimeMillsInLitePullQueue
    waitTimeMillsInPullQueue waitTimeMillsInSendQueue waitTimeMillsInTransactionQueue
    writeBufferHighWaterMark writeBufferLowWaterMark
""".split()  # noqa: SIM905  (a list of 400 quoted names is no easier to read)
)
"""Keys of the other parts of a broker: its name, its network, its thread pools."""

NAMESRV_KEYS: Final = frozenset(
    """
    bindAddress clientRequestThreadPoolNums clientRequestThreadPoolQueueCapacity clusterTest
    configBlackList configStorePath defaultThreadPoolNums defaultThreadPoolQueueCapacity
    deleteTopicWithBrokerRegistration enableAllTopicList enableControllerInNamesrv
    enableShutdownGracefully enableTopicList kvConfigPath listenPort needWaitForService
    notifyMinBrokerIdChanged orderMessageEnable productEnvName returnOrderTopicConfigToBroker
    rocketmqHome scanNotActiveBrokerInterval serverChannelMaxIdleTimeSeconds supportActingMaster
    unRegisterBrokerQueueCapacity waitSecondsForService
""".split()  # noqa: SIM905  (a list of quoted names is no easier to read)
)
"""Keys of a name server."""

LOG_KEYS: Final = frozenset(
    {"logFile", "logFileBytes", "logFileCount", "logLevel", "slowRequestMillis"}
)
"""Ours, of every server."""

OWN_KEYS: Final = LOG_KEYS | {
    "dispatch",
    "failover",
    "failoverCaFile",
    "failoverCertFile",
    "failoverKeyFile",
    "failoverLeaseMs",
    "failoverPasswordFile",
    "failoverUser",
    "haSlaveFallbehindMax",  # RocketMQ 4's name of haMaxGapNotInSync
    "indexFileRollInterval",
    "maxIndexFileNum",
    "memoryTopicBytesMax",
    "memoryTopicEnable",
    "primaryAddress",
    "pullTransfer",
    "stateSyncAllInterval",
    "stateSyncInterval",
    "syncMasterAsInV4",
    "waitForReaders",
}
"""What RocketMQ does not know."""

KNOWN_KEYS: Final = STORE_KEYS | OTHER_KEYS | NAMESRV_KEYS | OWN_KEYS

"""Which typed header and which typed body each code has: the map of the protocol as far as we speak it.

A code without an entry has no fields, or no JSON body. Fields that any request may carry, whatever its
code, stand in COMMON_FIELDS.
"""

from collections.abc import Mapping
from typing import Final

from orbitmq.wire.bodies.assignment import (
    AssignmentQuestion,
    Assignments,
    RequestMode,
    RequestModes,
)
from orbitmq.wire.bodies.body import Body
from orbitmq.wire.bodies.connections import (
    ConsumerConnections,
    GroupSubscription,
    ProducerConnections,
    ProducerTable,
)
from orbitmq.wire.bodies.group_config import GroupConfig, GroupConfigList, GroupTable
from orbitmq.wire.bodies.heartbeat import CheckClient, ConsumerIds, HeartbeatData
from orbitmq.wire.bodies.lists import GroupList, KvTable, TopicList
from orbitmq.wire.bodies.locks import LockAnswer, LockRequest
from orbitmq.wire.bodies.offsets import DelayOffsets, OffsetTable
from orbitmq.wire.bodies.replication import ReplicationStatus
from orbitmq.wire.bodies.route import BrokerMembersAnswer, ClusterInfo, TopicRoute
from orbitmq.wire.bodies.running_info import ConsumerRunningInfo, DirectConsumeResult
from orbitmq.wire.bodies.stats import (
    BrokerConsumeStats,
    ConsumerStatus,
    ConsumeStats,
    ConsumeTimeSpans,
    CorrectionOffsets,
    QueueUnits,
    ResetOffsets,
    StatsData,
    TopicStats,
)
from orbitmq.wire.bodies.topic_config import (
    DataVersion,
    Registration,
    TopicConfig,
    TopicConfigList,
    TopicTable,
)
from orbitmq.wire.codes import RequestCode as Code
from orbitmq.wire.headers import (
    admin,
    clients,
    kv,
    offsets,
    pop,
    pull,
    query,
    registration,
    reply,
    route,
    send,
    send_back,
    transaction,
)
from orbitmq.wire.headers.header import Header

COMMON_FIELDS: Final = frozenset(
    {
        "AccessKey",  # who signs
        "Signature",
        "SecurityToken",
        "OnsChannel",  # C++: which cloud
        "ReqT",  # how a Java consumer consumes
        "bname",  # which broker the client thinks it talks to
        "lo",  # static topics
        "ns",  # namespace
        "nsd",
        "oway",
    }
)

REQUEST_HEADERS: Final[Mapping[int, type[Header]]] = {
    Code.SEND_MESSAGE: send.SendHeader,
    Code.SEND_MESSAGE_V2: send.SendHeader,
    Code.SEND_BATCH_MESSAGE: send.SendHeader,
    Code.SEND_REPLY_MESSAGE_V2: send.SendHeader,
    Code.PUSH_REPLY_MESSAGE_TO_CLIENT: reply.ReplyHeader,
    Code.PULL_MESSAGE: pull.PullHeader,
    Code.LITE_PULL_MESSAGE: pull.PullHeader,
    Code.QUERY_MESSAGE: query.QueryHeader,
    Code.VIEW_MESSAGE_BY_ID: query.ViewHeader,
    Code.CONSUMER_SEND_MSG_BACK: send_back.SendBackHeader,
    Code.POP_MESSAGE: pop.PopHeader,
    Code.ACK_MESSAGE: pop.AckHeader,
    Code.PEEK_MESSAGE: pop.PeekHeader,
    Code.CHANGE_MESSAGE_INVISIBLETIME: pop.ChangeInvisibleHeader,
    Code.NOTIFICATION: pop.NotificationHeader,
    Code.POLLING_INFO: pop.PollingInfoHeader,
    Code.QUERY_CONSUMER_OFFSET: offsets.QueryConsumerOffset,
    Code.UPDATE_CONSUMER_OFFSET: offsets.UpdateConsumerOffset,
    Code.SEARCH_OFFSET_BY_TIMESTAMP: offsets.SearchOffset,
    Code.GET_MAX_OFFSET: offsets.QueueHeader,
    Code.GET_MIN_OFFSET: offsets.QueueHeader,
    Code.GET_EARLIEST_MSG_STORETIME: offsets.QueueHeader,
    Code.END_TRANSACTION: transaction.EndTransaction,
    Code.CHECK_TRANSACTION_STATE: transaction.CheckTransaction,
    Code.RESUME_CHECK_HALF_MESSAGE: transaction.ResumeCheck,
    Code.UNREGISTER_CLIENT: clients.UnregisterClient,
    Code.GET_CONSUMER_LIST_BY_GROUP: clients.ConsumerGroupHeader,
    Code.NOTIFY_CONSUMER_IDS_CHANGED: clients.ConsumerGroupHeader,
    Code.PUT_KV_CONFIG: kv.PutKv,
    Code.GET_KV_CONFIG: kv.GetKv,
    Code.DELETE_KV_CONFIG: kv.GetKv,
    Code.GET_KVLIST_BY_NAMESPACE: kv.GetKvList,
    Code.REGISTER_BROKER: registration.RegisterBroker,
    Code.UNREGISTER_BROKER: registration.UnregisterBroker,
    Code.QUERY_DATA_VERSION: registration.QueryDataVersion,
    Code.BROKER_HEARTBEAT: registration.BrokerHeartbeat,
    Code.GET_ROUTEINFO_BY_TOPIC: route.GetRoute,
    Code.WIPE_WRITE_PERM_OF_BROKER: route.ChangeWritePerm,
    Code.ADD_WRITE_PERM_OF_BROKER: route.ChangeWritePerm,
    Code.DELETE_TOPIC_IN_NAMESRV: route.DeleteTopicInNamesrv,
    Code.REGISTER_TOPIC_IN_NAMESRV: admin.TopicHeader,
    Code.GET_TOPICS_BY_CLUSTER: route.GetTopicsByCluster,
    Code.GET_BROKER_MEMBER_GROUP: route.GetBrokerMembers,
    Code.UPDATE_AND_CREATE_TOPIC: admin.PutTopicHeader,
    Code.DELETE_TOPIC_IN_BROKER: admin.TopicHeader,
    Code.GET_TOPIC_STATS_INFO: admin.TopicHeader,
    Code.QUERY_TOPIC_CONSUME_BY_WHO: admin.TopicHeader,
    Code.GET_TOPIC_CONFIG: admin.GetTopicConfigHeader,
    Code.GET_SUBSCRIPTIONGROUP_CONFIG: admin.GroupHeader,
    Code.QUERY_TOPICS_BY_CONSUMER: admin.GroupHeader,
    Code.DELETE_SUBSCRIPTIONGROUP: admin.DeleteGroupHeader,
    Code.UPDATE_AND_GET_GROUP_FORBIDDEN: admin.GroupForbiddenHeader,
    Code.GET_CONSUME_STATS: admin.ConsumeStatsHeader,
    Code.GET_BROKER_CONSUME_STATS: admin.BrokerConsumeStatsHeader,
    Code.QUERY_CONSUME_TIME_SPAN: admin.GroupTopicHeader,
    Code.QUERY_SUBSCRIPTION_BY_CONSUMER: admin.GroupTopicHeader,
    Code.CLONE_GROUP_OFFSET: admin.CloneOffsetsHeader,
    Code.QUERY_CORRECTION_OFFSET: admin.CorrectionOffsetHeader,
    Code.QUERY_CONSUME_QUEUE: admin.QueryQueueHeader,
    Code.VIEW_BROKER_STATS_DATA: admin.StatsItemHeader,
    Code.GET_CONSUMER_CONNECTION_LIST: clients.ConsumerGroupHeader,
    Code.GET_PRODUCER_CONNECTION_LIST: admin.ProducerGroupHeader,
    Code.INVOKE_BROKER_TO_RESET_OFFSET: admin.ResetOffsetHeader,
    Code.RESET_CONSUMER_CLIENT_OFFSET: admin.ResetOffsetHeader,
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: admin.ConsumerStatusHeader,
    Code.GET_CONSUMER_STATUS_FROM_CLIENT: admin.ConsumerStatusHeader,
    Code.GET_CONSUMER_RUNNING_INFO: admin.RunningInfoHeader,
    Code.CONSUME_MESSAGE_DIRECTLY: admin.ConsumeDirectlyHeader,
}

ANSWER_HEADERS: Final[Mapping[int, type[Header]]] = {
    Code.SEND_MESSAGE: send.SendAnswer,
    Code.SEND_MESSAGE_V2: send.SendAnswer,
    Code.SEND_BATCH_MESSAGE: send.SendAnswer,
    Code.SEND_REPLY_MESSAGE_V2: send.SendAnswer,
    Code.PULL_MESSAGE: pull.PullAnswer,
    Code.LITE_PULL_MESSAGE: pull.PullAnswer,
    Code.QUERY_MESSAGE: query.QueryAnswer,
    Code.POP_MESSAGE: pop.PopAnswer,
    Code.PEEK_MESSAGE: pop.PopAnswer,
    Code.CHANGE_MESSAGE_INVISIBLETIME: pop.ChangeInvisibleAnswer,
    Code.NOTIFICATION: pop.NotificationAnswer,
    Code.POLLING_INFO: pop.PollingInfoAnswer,
    Code.QUERY_CONSUMER_OFFSET: offsets.OffsetAnswer,
    Code.SEARCH_OFFSET_BY_TIMESTAMP: offsets.OffsetAnswer,
    Code.GET_MAX_OFFSET: offsets.OffsetAnswer,
    Code.GET_MIN_OFFSET: offsets.OffsetAnswer,
    Code.GET_EARLIEST_MSG_STORETIME: offsets.TimestampAnswer,
    Code.HEART_BEAT: clients.HeartbeatAnswer,
    Code.GET_KV_CONFIG: kv.GetKvAnswer,
    Code.REGISTER_BROKER: registration.RegisterBrokerAnswer,
    Code.QUERY_DATA_VERSION: registration.QueryDataVersionAnswer,
    Code.WIPE_WRITE_PERM_OF_BROKER: route.WipeWritePermAnswer,
    Code.ADD_WRITE_PERM_OF_BROKER: route.AddWritePermAnswer,
    Code.GET_BROKER_CONFIG: admin.BrokerConfigAnswer,
}

REQUEST_BODIES: Final[Mapping[int, type[Body]]] = {
    Code.UPDATE_AND_CREATE_TOPIC_LIST: TopicConfigList,
    Code.HEART_BEAT: HeartbeatData,
    Code.LOCK_BATCH_MQ: LockRequest,
    Code.UNLOCK_BATCH_MQ: LockRequest,
    Code.CHECK_CLIENT_CONFIG: CheckClient,
    Code.REGISTER_BROKER: Registration,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: GroupConfig,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: GroupConfigList,
    Code.REGISTER_TOPIC_IN_NAMESRV: TopicRoute,
    Code.QUERY_DATA_VERSION: DataVersion,
    Code.RESET_CONSUMER_CLIENT_OFFSET: ResetOffsets,
    Code.QUERY_ASSIGNMENT: AssignmentQuestion,
    Code.SET_MESSAGE_REQUEST_MODE: RequestMode,
}

ANSWER_BODIES: Final[Mapping[int, type[Body]]] = {
    Code.GET_ALL_TOPIC_CONFIG: TopicTable,
    Code.GET_BROKER_RUNTIME_INFO: KvTable,
    Code.GET_CONSUMER_LIST_BY_GROUP: ConsumerIds,
    Code.LOCK_BATCH_MQ: LockAnswer,
    Code.GET_ALL_CONSUMER_OFFSET: OffsetTable,
    Code.GET_ALL_DELAY_OFFSET: DelayOffsets,
    Code.REGISTER_BROKER: KvTable,
    Code.GET_ROUTEINFO_BY_TOPIC: TopicRoute,
    Code.GET_BROKER_CLUSTER_INFO: ClusterInfo,
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: GroupTable,
    Code.GET_TOPIC_STATS_INFO: TopicStats,
    Code.GET_CONSUMER_CONNECTION_LIST: ConsumerConnections,
    Code.GET_PRODUCER_CONNECTION_LIST: ProducerConnections,
    Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: TopicList,
    Code.GET_CONSUME_STATS: ConsumeStats,
    Code.GET_KVLIST_BY_NAMESPACE: KvTable,
    Code.GET_CONSUMER_STATUS_FROM_CLIENT: ConsumerStatus,
    Code.INVOKE_BROKER_TO_RESET_OFFSET: ResetOffsets,
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: ConsumerStatus,
    Code.GET_TOPICS_BY_CLUSTER: TopicList,
    Code.QUERY_TOPIC_CONSUME_BY_WHO: GroupList,
    Code.QUERY_CONSUME_TIME_SPAN: ConsumeTimeSpans,
    Code.GET_SYSTEM_TOPIC_LIST_FROM_NS: TopicList,
    Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: TopicList,
    Code.GET_CONSUMER_RUNNING_INFO: ConsumerRunningInfo,
    Code.QUERY_CORRECTION_OFFSET: CorrectionOffsets,
    Code.CONSUME_MESSAGE_DIRECTLY: DirectConsumeResult,
    Code.GET_UNIT_TOPIC_LIST: TopicList,
    Code.GET_HAS_UNIT_SUB_TOPIC_LIST: TopicList,
    Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: TopicList,
    Code.VIEW_BROKER_STATS_DATA: StatsData,
    Code.GET_BROKER_CONSUME_STATS: BrokerConsumeStats,
    Code.GET_BROKER_HA_STATUS: ReplicationStatus,
    Code.QUERY_CONSUME_QUEUE: QueueUnits,
    Code.QUERY_DATA_VERSION: DataVersion,
    Code.GET_ALL_PRODUCER_INFO: ProducerTable,
    Code.QUERY_TOPICS_BY_CONSUMER: TopicList,
    Code.QUERY_SUBSCRIPTION_BY_CONSUMER: GroupSubscription,
    Code.GET_TOPIC_CONFIG: TopicConfig,
    Code.GET_SUBSCRIPTIONGROUP_CONFIG: GroupConfig,
    Code.GET_BROKER_MEMBER_GROUP: BrokerMembersAnswer,
    Code.QUERY_ASSIGNMENT: Assignments,
    Code.GET_ALL_MESSAGE_REQUEST_MODE: RequestModes,
}

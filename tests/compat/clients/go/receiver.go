package main

import (
	"context"
	"strings"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

type receiver struct {
	words    words
	consumer rocketmq.PushConsumer
}

func (r *receiver) start() {
	var err error
	r.consumer, err = rocketmq.NewPushConsumer(
		consumer.WithNsResolver(primitive.NewPassthroughResolver(r.words.namesrv())),
		consumer.WithGroupName(r.words.text("group", "receivers")),
		consumer.WithInstance(r.words.text("instance", "receive"+r.words["id"])),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumerOrder(r.words["orderly"] == "true"),
		consumer.WithSuspendCurrentQueueTimeMillis(200*time.Millisecond),
	)
	if err == nil {
		tags := strings.ReplaceAll(r.words.text("tags", "*"), "||", " || ")
		selector := consumer.MessageSelector{Type: consumer.TAG, Expression: tags}
		if sql := r.words.text("sql", ""); sql != "" {
			selector = consumer.MessageSelector{Type: consumer.SQL92, Expression: sql}
		}
		err = r.consumer.Subscribe(r.words["topic"], selector, r.take)
	}
	if err == nil {
		err = r.consumer.Start()
	}
	if err != nil {
		writeError(r.words, err)
		return
	}
	write(r.words, "ready", nil)
}

func (r *receiver) leave() {
	r.consumer.Shutdown()
	write(r.words, "done", nil)
}

func (r *receiver) take(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	failures, taken := r.words.number("fail", 0), true
	for _, message := range messages {
		write(r.words, "got", row{
			"body": string(message.Body), "message_id": message.MsgId, "topic": message.Topic,
			"tag": message.GetTags(), "key": message.GetKeys(), "broker": message.Queue.BrokerName,
			"queue": message.Queue.QueueId, "offset": message.QueueOffset, "times": message.ReconsumeTimes,
		})
		taken = taken && int(message.ReconsumeTimes) >= failures
	}
	if taken {
		return consumer.ConsumeSuccess, nil
	}
	if concurrent, found := primitive.GetConcurrentlyCtx(ctx); found {
		concurrent.DelayLevelWhenNextConsume = 1
		return consumer.ConsumeRetryLater, nil
	}
	return consumer.SuspendCurrentQueueAMoment, nil
}

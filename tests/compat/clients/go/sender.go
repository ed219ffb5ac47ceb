package main

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const (
	batchSize   = 10
	oneWayPause = 500 * time.Millisecond
)

type sender struct {
	words    words
	stopped  int32
	producer rocketmq.Producer
}

func (s *sender) stop() {
	atomic.StoreInt32(&s.stopped, 1)
}

func (s *sender) run() {
	var err error
	s.producer, err = rocketmq.NewProducer(
		producer.WithNsResolver(primitive.NewPassthroughResolver(s.words.namesrv())),
		producer.WithGroupName(s.words.text("group", "senders")),
		producer.WithInstanceName("send"+s.words["id"]),
		producer.WithRetry(s.words.number("retries", 2)),
		producer.WithSendMsgTimeout(10*time.Second),
	)
	if err == nil {
		err = s.producer.Start()
	}
	if err == nil {
		err = s.sendAll()
	}
	if err != nil {
		writeError(s.words, err)
		return
	}
	s.producer.Shutdown()
	write(s.words, "done", nil)
}

func (s *sender) sendAll() error {
	count, mode := s.words.number("count", 1), s.words.text("mode", "sync")
	var answered sync.WaitGroup
	for i := 0; i < count && atomic.LoadInt32(&s.stopped) == 0; i++ {
		message := s.message(i)
		switch mode {
		case "async":
			answered.Add(1)
			err := s.producer.SendAsync(context.Background(), func(_ context.Context, result *primitive.SendResult, err error) {
				s.wrote(message, result, err)
				answered.Done()
			}, message)
			if err != nil {
				return err
			}
		case "oneway":
			if err := s.producer.SendOneWay(context.Background(), message); err != nil {
				return err
			}
		case "batch":
			messages := []*primitive.Message{message}
			for ; len(messages) < batchSize && i+1 < count; i++ {
				messages = append(messages, s.message(i+1))
			}
			result, err := s.producer.SendSync(context.Background(), messages...)
			s.wroteBatch(messages, result, err)
		default:
			result, err := s.producer.SendSync(context.Background(), message)
			s.wrote(message, result, err)
		}
	}
	answered.Wait()
	if mode == "oneway" {
		// The broker answers them all the same; a socket closed with unread answers resets the connection,
		// and what the broker had not read yet is lost.
		time.Sleep(oneWayPause)
	}
	return nil
}

func (s *sender) message(number int) *primitive.Message {
	body := s.words["body"] + strconv.Itoa(number) + strings.Repeat("x", s.words.number("filler", 0))
	message := primitive.NewMessage(s.words["topic"], []byte(body))
	if tag := s.words["tag"]; tag != "" {
		message.WithTag(tag)
	}
	if key := s.words["key"]; key != "" {
		message.WithKeys([]string{key})
	}
	return message
}

func (s *sender) wrote(message *primitive.Message, result *primitive.SendResult, err error) {
	s.wroteBatch([]*primitive.Message{message}, result, err)
}

func (s *sender) wroteBatch(messages []*primitive.Message, result *primitive.SendResult, err error) {
	for i, message := range messages {
		if err != nil {
			write(s.words, "failed", row{"body": string(message.Body), "why": err.Error()})
			continue
		}
		if result.Status != primitive.SendOK {
			write(s.words, "failed", row{"body": string(message.Body), "why": result.String()})
			continue
		}
		write(s.words, "sent", row{
			"body": string(message.Body), "message_id": result.MsgID, "offset_id": result.OffsetMsgID,
			"status": "SEND_OK", "broker": result.MessageQueue.BrokerName,
			"queue": result.MessageQueue.QueueId, "offset": result.QueueOffset + int64(i),
		})
	}
}

package main

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// transactor is the command transact: a body ends with two letters, what is said at once and what when asked.
type transactor struct {
	words    words
	producer rocketmq.TransactionProducer
}

func (t *transactor) run() {
	var err error
	t.producer, err = rocketmq.NewTransactionProducer(
		t,
		producer.WithNsResolver(primitive.NewPassthroughResolver(t.words.namesrv())),
		producer.WithGroupName(t.words.text("group", "transactors")),
		producer.WithInstanceName("transact"+t.words["id"]),
		producer.WithSendMsgTimeout(10*time.Second),
	)
	if err == nil {
		err = t.producer.Start()
	}
	if err == nil {
		err = t.sendAll()
	}
	if err != nil {
		writeError(t.words, err)
		return
	}
	write(t.words, "ready", nil)
}

func (t *transactor) sendAll() error {
	for number, plan := range strings.Split(t.words["plan"], ",") {
		if plan == "" {
			continue
		}
		body := t.words["body"] + strconv.Itoa(number) + "-" + plan
		message := primitive.NewMessage(t.words["topic"], []byte(body))
		if _, err := t.producer.SendMessageInTransaction(context.Background(), message); err != nil {
			return err
		}
	}
	return nil
}

func (t *transactor) resign() {
	t.producer.Shutdown()
	write(t.words, "done", nil)
}

// ExecuteLocalTransaction says at once what becomes of a message.
func (t *transactor) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	return t.told("sent", string(message.Body), 2)
}

// CheckLocalTransaction says it when a broker asks.
func (t *transactor) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	return t.told("checked", string(message.Body), 1)
}

func (t *transactor) told(kind, body string, fromEnd int) primitive.LocalTransactionState {
	write(t.words, kind, row{"body": body})
	switch body[len(body)-fromEnd] {
	case 'C':
		return primitive.CommitMessageState
	case 'R':
		return primitive.RollbackMessageState
	}
	return primitive.UnknowState
}

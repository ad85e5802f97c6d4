package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const txnTimeout = 30 * time.Second

type transactor struct {
	*kgo.Client
	id string
}

// transactions are producers with a transactional id, by the name that the tests gave them.
type transactions struct {
	mu        sync.Mutex
	producers map[string]transactor
}

func (t *transactions) perform(req *request) (any, error) {
	if req.Op == "txn_open" {
		return nil, t.open(req)
	}
	t.mu.Lock()
	client := t.producers[req.Name]
	t.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), txnTimeout)
	defer cancel()
	switch req.Op {
	case "txn_init":
		_, _, err := client.ProducerID(ctx)
		return nil, err
	case "txn_begin":
		return nil, client.BeginTransaction()
	case "txn_send":
		record := &kgo.Record{Topic: req.Topic, Partition: req.Partition, Value: req.Value}
		return nil, client.ProduceSync(ctx, record).FirstErr()
	case "txn_flush":
		return nil, client.Flush(ctx)
	case "txn_commit":
		return nil, client.EndTransaction(ctx, kgo.TryCommit)
	case "txn_abort":
		return nil, client.EndTransaction(ctx, kgo.TryAbort)
	case "txn_offsets":
		return nil, client.sendOffset(ctx, req)
	case "txn_close":
		client.Close()
		return nil, nil
	}
	return nil, fmt.Errorf("unknown operation %s", req.Op)
}

func (t *transactions) open(req *request) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(req.Bootstrap), kgo.TransactionalID(req.TransactionalID),
		kgo.TransactionTimeout(time.Duration(req.TimeoutMs)*time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
		kgo.MetadataMinAge(20*time.Millisecond),
	)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.producers[req.Name] = transactor{client, req.TransactionalID}
	return nil
}

// sendOffset commits one offset in the transaction; the library itself does so only for a group that
// it is a member of.
func (t transactor) sendOffset(ctx context.Context, req *request) error {
	id, epoch, err := t.ProducerID(ctx)
	if err != nil {
		return err
	}
	add := kmsg.NewPtrAddOffsetsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch = t.id, id, epoch
	add.Group = req.Group
	added, err := add.RequestWith(ctx, t.Client)
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(added.ErrorCode); err != nil {
		return err
	}
	commit := kmsg.NewPtrTxnOffsetCommitRequest()
	commit.TransactionalID, commit.ProducerID, commit.ProducerEpoch = t.id, id, epoch
	commit.Group, commit.Generation = req.Group, -1
	row := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	row.Partition, row.Offset = req.Partition, req.Offset
	topic := kmsg.NewTxnOffsetCommitRequestTopic()
	topic.Topic, topic.Partitions = req.Topic, []kmsg.TxnOffsetCommitRequestTopicPartition{row}
	commit.Topics = append(commit.Topics, topic)
	committed, err := commit.RequestWith(ctx, t.Client)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(committed.Topics[0].Partitions[0].ErrorCode)
}

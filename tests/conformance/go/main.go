// Runs franz-go: reads one request per line as JSON from standard input.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

type header struct {
	name  string
	value []byte
}

func (h *header) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&h.name, &h.value})
}

func (h header) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{h.name, h.value})
}

type message struct {
	Key           []byte   `json:"key"`
	Value         []byte   `json:"value"`
	Headers       []header `json:"headers"`
	TimestampMs   *int64   `json:"timestamp_ms"`
	TimestampType int      `json:"timestamp_type"`
	Partition     int32    `json:"partition"`
	Offset        int64    `json:"offset"`
}

type partition struct {
	topic string
	index int32
}

func (p *partition) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&p.topic, &p.index})
}

func (p partition) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{p.topic, p.index})
}

type settings struct {
	Group            string `json:"group"`
	InstanceID       string `json:"instance_id"`
	Strategy         string `json:"strategy"`
	SessionTimeoutMs int64  `json:"session_timeout_ms"`
	FetchMaxWaitMs   int64  `json:"fetch_max_wait_ms"`
	FetchMinBytes    int32  `json:"fetch_min_bytes"`
	MaxPartBytes     int32  `json:"max_partition_fetch_bytes"`
	IsolationLevel   string `json:"isolation.level"`
}

type request struct {
	ID          int64       `json:"id"`
	Op          string      `json:"op"`
	Handle      string      `json:"handle"`
	Name        string      `json:"name"`
	Bootstrap   string      `json:"bootstrap"`
	Topic       string      `json:"topic"`
	Topics      []string    `json:"topics"`
	Partitions  []partition `json:"partitions"`
	Partition   int32       `json:"partition"`
	Offset      int64       `json:"offset"`
	TimestampMs int64       `json:"timestamp_ms"`
	TimeoutMs   int64       `json:"timeout_ms"`
	Messages    []message   `json:"messages"`
	Codec       string      `json:"codec"`
	Acks        int         `json:"acks"`
	Idempotent  bool        `json:"idempotent"`
	BatchBytes  int32       `json:"batch_bytes"`
	Reset       string      `json:"reset"`
	Settings    settings    `json:"settings"`

	TransactionalID string `json:"transactional_id"`
	Group           string `json:"group"`
	Value           []byte `json:"value"`
}

// consumer is a client and the partitions that are assigned to it.
type consumer struct {
	client   *kgo.Client
	mu       sync.Mutex
	assigned map[partition]bool
}

type program struct {
	bootstrap string
	txns      transactions
	mu        sync.Mutex
	consumers map[string]*consumer
}

func main() {
	p := &program{bootstrap: os.Args[1], consumers: map[string]*consumer{}}
	p.txns.producers = map[string]transactor{}
	out := json.NewEncoder(os.Stdout)
	var outMu sync.Mutex
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var req request
		if err := json.Unmarshal(line, &req); err != nil {
			panic(err)
		}
		go func() {
			answer := map[string]any{"id": req.ID}
			if result, err := p.perform(&req); err != nil {
				answer["error"] = err.Error()
				var known *kerr.Error
				if errors.As(err, &known) {
					answer["code"] = known.Code
				}
			} else {
				answer["ok"] = result
			}
			outMu.Lock()
			defer outMu.Unlock()
			_ = out.Encode(answer)
		}()
	}
}

func (p *program) perform(req *request) (any, error) {
	if strings.HasPrefix(req.Op, "txn_") {
		return p.txns.perform(req)
	}
	switch req.Op {
	case "produce":
		return p.produce(req)
	case "open":
		return nil, p.open(req)
	case "offset_for_time":
		return p.offsetForTime(req)
	case "watermarks":
		return p.watermarks(req)
	}
	p.mu.Lock()
	c := p.consumers[req.Handle]
	p.mu.Unlock()
	switch req.Op {
	case "poll":
		return c.poll(time.Duration(req.TimeoutMs) * time.Millisecond)
	case "assignment":
		return c.assignment(), nil
	case "commit":
		return nil, c.client.CommitUncommittedOffsets(context.Background())
	case "seek":
		// Remove and add the partition again: after SetOffsets, polls would first return buffered records.
		c.client.RemoveConsumePartitions(map[string][]int32{req.Topic: {req.Partition}})
		c.client.AddConsumePartitions(map[string]map[int32]kgo.Offset{
			req.Topic: {req.Partition: kgo.NewOffset().At(req.Offset)},
		})
		return nil, nil
	case "close":
		c.client.Close()
		return nil, nil
	}
	return nil, fmt.Errorf("unknown operation %s", req.Op)
}

func codec(name string) kgo.CompressionCodec {
	return map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}[name]
}

func (p *program) produce(req *request) (any, error) {
	options := []kgo.Opt{
		kgo.SeedBrokers(req.Bootstrap), kgo.ProducerBatchCompression(codec(req.Codec)),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(5_000_000),
		kgo.MaxBufferedRecords(100_000), kgo.ProducerLinger(5 * time.Millisecond),
		kgo.AllowAutoTopicCreation(), kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
		kgo.MetadataMinAge(20 * time.Millisecond), kgo.UnknownTopicRetries(100),
	}
	switch req.Acks {
	case 0:
		options = append(options, kgo.RequiredAcks(kgo.NoAck()))
	case 1:
		options = append(options, kgo.RequiredAcks(kgo.LeaderAck()))
	}
	if !req.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(1))
	}
	if req.BatchBytes > 0 {
		options = append(options, kgo.ProducerBatchMaxBytes(req.BatchBytes))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	records := make([]*kgo.Record, len(req.Messages))
	for i, m := range req.Messages {
		records[i] = &kgo.Record{Topic: req.Topic, Partition: m.Partition, Key: m.Key, Value: m.Value}
		for _, h := range m.Headers {
			records[i].Headers = append(records[i].Headers, kgo.RecordHeader{Key: h.name, Value: h.value})
		}
		if m.TimestampMs != nil {
			records[i].Timestamp = time.UnixMilli(*m.TimestampMs)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	results := client.ProduceSync(ctx, records...)
	if err := results.FirstErr(); err != nil {
		return nil, err
	}
	offsets := make([]int64, len(records))
	for i, record := range records {
		offsets[i] = record.Offset
	}
	return offsets, nil
}

func (p *program) open(req *request) error {
	c := &consumer{assigned: map[partition]bool{}}
	s := req.Settings
	start := kgo.NewOffset().AtStart()
	if req.Reset == "latest" {
		start = kgo.NewOffset().AtEnd()
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(p.bootstrap), kgo.ConsumeResetOffset(start), kgo.MetadataMaxAge(time.Second),
		kgo.MetadataMinAge(20 * time.Millisecond),
	}
	if s.FetchMaxWaitMs > 0 {
		options = append(options, kgo.FetchMaxWait(time.Duration(s.FetchMaxWaitMs)*time.Millisecond))
	}
	if s.FetchMinBytes > 0 {
		options = append(options, kgo.FetchMinBytes(s.FetchMinBytes))
	}
	if s.IsolationLevel == "read_committed" {
		options = append(options, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	if s.MaxPartBytes > 0 {
		options = append(options, kgo.FetchMaxPartitionBytes(s.MaxPartBytes))
	}
	if len(req.Topics) > 0 {
		options = append(options, c.groupOptions(req)...)
	} else {
		chosen := map[string]map[int32]kgo.Offset{}
		for _, one := range req.Partitions {
			if chosen[one.topic] == nil {
				chosen[one.topic] = map[int32]kgo.Offset{}
			}
			chosen[one.topic][one.index] = start
			c.assigned[one] = true
		}
		options = append(options, kgo.ConsumePartitions(chosen))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	c.client = client
	p.mu.Lock()
	defer p.mu.Unlock()
	p.consumers[req.Name] = c
	return nil
}

func (c *consumer) groupOptions(req *request) []kgo.Opt {
	s := req.Settings
	balancers := map[string]kgo.GroupBalancer{
		"range": kgo.RangeBalancer(), "sticky": kgo.StickyBalancer(),
		"cooperative-sticky": kgo.CooperativeStickyBalancer(),
	}
	session := time.Duration(s.SessionTimeoutMs) * time.Millisecond
	note := func(present bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
			c.mu.Lock()
			defer c.mu.Unlock()
			for topic, indexes := range changed {
				for _, index := range indexes {
					if present {
						c.assigned[partition{topic, index}] = true
					} else {
						delete(c.assigned, partition{topic, index})
					}
				}
			}
		}
	}
	options := []kgo.Opt{
		kgo.ConsumerGroup(s.Group), kgo.ConsumeTopics(req.Topics...), kgo.DisableAutoCommit(),
		kgo.Balancers(balancers[s.Strategy]), kgo.SessionTimeout(session),
		kgo.HeartbeatInterval(min(session/4, 500*time.Millisecond)),
		kgo.OnPartitionsAssigned(note(true)), kgo.OnPartitionsRevoked(note(false)), kgo.OnPartitionsLost(note(false)),
	}
	if s.InstanceID != "" {
		options = append(options, kgo.InstanceID(s.InstanceID))
	}
	return options
}

func (c *consumer) poll(timeout time.Duration) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	fetches := c.client.PollRecords(ctx, 1000)
	for _, failed := range fetches.Errors() {
		if !errors.Is(failed.Err, context.DeadlineExceeded) {
			return nil, failed.Err
		}
	}
	got := []message{}
	fetches.EachRecord(func(r *kgo.Record) {
		at := r.Timestamp.UnixMilli()
		one := message{
			Key: r.Key, Value: r.Value, TimestampMs: &at, TimestampType: int(r.Attrs.TimestampType()),
			Partition: r.Partition, Offset: r.Offset, Headers: []header{},
		}
		for _, h := range r.Headers {
			one.Headers = append(one.Headers, header{h.Key, h.Value})
		}
		got = append(got, one)
	})
	return got, nil
}

func (c *consumer) assignment() []partition {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := []partition{}
	for one := range c.assigned {
		all = append(all, one)
	}
	return all
}

func (p *program) admin() (*kadm.Client, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(p.bootstrap))
	if err != nil {
		return nil, err
	}
	return kadm.NewClient(client), nil
}

func (p *program) offsetForTime(req *request) (any, error) {
	admin, err := p.admin()
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	listed, err := admin.ListOffsetsAfterMilli(context.Background(), req.TimestampMs, req.Topic)
	if err != nil {
		return nil, err
	}
	found, _ := listed.Lookup(req.Topic, req.Partition)
	// If there is no such record, kadm returns the end offset without a timestamp.
	if found.Err != nil || found.Timestamp < 0 {
		return nil, found.Err
	}
	return found.Offset, nil
}

func (p *program) watermarks(req *request) (any, error) {
	admin, err := p.admin()
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	starts, err := admin.ListStartOffsets(context.Background(), req.Topic)
	if err != nil {
		return nil, err
	}
	ends, err := admin.ListEndOffsets(context.Background(), req.Topic)
	if err != nil {
		return nil, err
	}
	low, _ := starts.Lookup(req.Topic, req.Partition)
	high, _ := ends.Lookup(req.Topic, req.Partition)
	return []int64{low.Offset, high.Offset}, nil
}

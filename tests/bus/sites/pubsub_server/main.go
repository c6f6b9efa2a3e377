// Google's own fake of Pub/Sub (pstest), as a server that tests can reach at a port of their choice, stop and start.
//
// All state is in memory, so a process that is killed comes back empty, where the real service keeps what it has
// confirmed. Therefore the process stays: SIGUSR1 closes the port and cuts every connection without a word, SIGUSR2
// opens it again on the same state. Each is confirmed with a line on stdout. When stdin ends, so does the server:
// nothing is left of it when the tests are gone, however they went.
//
// pstest is as it is, except for StreamingPull, which is written here on top of its Pull. Its own does not know
// max_outstanding_messages, and sends whatever there is into the buffers of the first connection, where it stays on
// lease when that subscriber has gone; and it does not notice when its subscription is deleted. The real service ends
// such a stream with NOT_FOUND.
package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"cloud.google.com/go/pubsub/pstest"
	"github.com/golang/protobuf/ptypes/empty"
	pb "google.golang.org/genproto/googleapis/pubsub/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// pause is how often a stream looks for messages whose lease has ended. Of others it hears by `news`.
const pause = 50 * time.Millisecond

// expiration is longer than a test on the shared server may take.
const expiration = 40 * time.Second

func main() {
	address := "127.0.0.1:" + os.Args[1]
	service := &server{
		GServer: &pstest.NewServer().GServer,
		streams: map[*stream]bool{},
		idle:    map[string]time.Time{},
		news:    make(chan struct{}),
	}
	go service.expire()
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGUSR1, syscall.SIGUSR2)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	for {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			fmt.Println("failed:", err)
			os.Exit(1)
		}
		front := grpc.NewServer(grpc.MaxRecvMsgSize(64 << 20))
		pb.RegisterPublisherServer(front, service)
		pb.RegisterSubscriberServer(front, service)
		go func() { _ = front.Serve(listener) }()
		fmt.Println("listening")
		await(signals, syscall.SIGUSR1)
		front.Stop()
		fmt.Println("stopped")
		await(signals, syscall.SIGUSR2)
	}
}

func await(signals chan os.Signal, wanted os.Signal) {
	for got := range signals {
		if got == wanted {
			return
		}
	}
}

type server struct {
	*pstest.GServer
	mu      sync.Mutex
	streams map[*stream]bool
	idle    map[string]time.Time // since when a subscription has had no stream
	news    chan struct{}        // closed, and replaced by another, when there may be something to send
}

// stream is a subscriber who is connected, with the ids it has and when its lease on each ends.
type stream struct {
	subscription string
	max          int
	seconds      int32
	held         map[string]time.Time
}

func (s *server) StreamingPull(call pb.Subscriber_StreamingPullServer) error {
	request, err := call.Recv()
	if err != nil {
		return err
	}
	st := &stream{request.Subscription, maxOutstanding(request), request.StreamAckDeadlineSeconds, map[string]time.Time{}}
	s.mu.Lock()
	s.streams[st] = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.streams, st)
		s.idle[st.subscription] = time.Now()
		s.mu.Unlock()
	}()
	ended := make(chan struct{})
	go func() { // heartbeats; our client acknowledges with calls of their own
		defer close(ended)
		for {
			if _, err := call.Recv(); err != nil {
				return
			}
		}
	}()
	for {
		select {
		case <-ended: // by the subscriber, who reads what was sent so far, and gets no more
			return nil
		default:
		}
		s.mu.Lock()
		news := s.news
		s.mu.Unlock()
		sent, err := s.send(call, st)
		if err != nil {
			return err
		}
		if !sent {
			select {
			case <-ended:
			case <-news:
			case <-time.After(pause):
			}
		}
	}
}

func (s *server) send(call pb.Subscriber_StreamingPullServer, st *stream) (bool, error) {
	room := int32(s.room(st))
	if room <= 0 {
		_, err := s.GetSubscription(call.Context(), &pb.GetSubscriptionRequest{Subscription: st.subscription})
		return false, err
	}
	pull := &pb.PullRequest{Subscription: st.subscription, MaxMessages: room, ReturnImmediately: true}
	answer, err := s.Pull(call.Context(), pull)
	if err != nil || len(answer.ReceivedMessages) == 0 {
		return false, err
	}
	ids := []string{}
	s.mu.Lock()
	for _, message := range answer.ReceivedMessages {
		ids = append(ids, message.AckId)
		st.held[message.AckId] = time.Now().Add(time.Duration(st.seconds) * time.Second)
	}
	s.mu.Unlock()
	lease := &pb.ModifyAckDeadlineRequest{Subscription: st.subscription, AckIds: ids, AckDeadlineSeconds: st.seconds}
	if _, err := s.GServer.ModifyAckDeadline(call.Context(), lease); err != nil {
		return false, err
	}
	if err := call.Send(&pb.StreamingPullResponse{ReceivedMessages: answer.ReceivedMessages}); err != nil {
		lease.AckDeadlineSeconds = 0 // nobody has them
		_, _ = s.ModifyAckDeadline(context.Background(), lease)
		return false, err
	}
	return true, nil
}

func (s *server) room(st *stream) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, until := range st.held {
		if time.Now().After(until) {
			delete(st.held, id)
		}
	}
	return st.max - len(st.held)
}

func (s *server) CreateSubscription(ctx context.Context, request *pb.Subscription) (*pb.Subscription, error) {
	answer, err := s.GServer.CreateSubscription(ctx, request)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.idle[request.Name] = time.Now()
	}
	return answer, err
}

// expire deletes subscriptions that have had no stream for long, as the real service does after 31 days: pstest looks at
// each one a hundred times a second, and tests leave hundreds of them behind.
func (s *server) expire() {
	for range time.Tick(expiration / 10) {
		s.mu.Lock()
		for st := range s.streams {
			delete(s.idle, st.subscription)
		}
		for name, since := range s.idle {
			if time.Since(since) > expiration {
				delete(s.idle, name)
				request := &pb.DeleteSubscriptionRequest{Subscription: name}
				_, _ = s.DeleteSubscription(context.Background(), request)
			}
		}
		s.mu.Unlock()
	}
}

func (s *server) Publish(ctx context.Context, request *pb.PublishRequest) (*pb.PublishResponse, error) {
	answer, err := s.GServer.Publish(ctx, request)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tell()
	return answer, err
}

func (s *server) tell() {
	close(s.news)
	s.news = make(chan struct{})
}

func (s *server) Acknowledge(ctx context.Context, request *pb.AcknowledgeRequest) (*empty.Empty, error) {
	answer, err := s.GServer.Acknowledge(ctx, request)
	s.lease(request.Subscription, request.AckIds, 0)
	return answer, err
}

func (s *server) ModifyAckDeadline(ctx context.Context, request *pb.ModifyAckDeadlineRequest) (*empty.Empty, error) {
	answer, err := s.GServer.ModifyAckDeadline(ctx, request)
	s.lease(request.Subscription, request.AckIds, request.AckDeadlineSeconds)
	return answer, err
}

// lease notes until when a message is held; one that is settled is not held again by a word that comes late.
func (s *server) lease(subscription string, ids []string, seconds int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.tell()
	for st := range s.streams {
		if st.subscription != subscription {
			continue
		}
		for _, id := range ids {
			if seconds == 0 {
				delete(st.held, id)
			} else if _, held := st.held[id]; held {
				st.held[id] = time.Now().Add(time.Duration(seconds) * time.Second)
			}
		}
	}
}

// DeleteSubscription of pstest panics where the topic was deleted before it.
func (s *server) DeleteSubscription(
	ctx context.Context, request *pb.DeleteSubscriptionRequest,
) (answer *empty.Empty, err error) {
	defer func() {
		if recover() != nil {
			err = status.Error(codes.Internal, "pstest cannot delete the subscription of a deleted topic")
		}
	}()
	return s.GServer.DeleteSubscription(ctx, request)
}

// maxOutstanding is field 7, a number, which is newer than the Go code that Debian has of this message.
func maxOutstanding(request *pb.StreamingPullRequest) int {
	fields := request.XXX_unrecognized
	for len(fields) > 0 {
		tag, size := binary.Uvarint(fields)
		value, more := binary.Uvarint(fields[max(size, 0):])
		if size <= 0 || more <= 0 || tag&7 != 0 {
			break
		}
		if tag>>3 == 7 && value > 0 {
			return int(value)
		}
		fields = fields[size+more:]
	}
	return 1000
}

func max(a, b int) int {
	if a > b {
		return a
	}
	return b
}

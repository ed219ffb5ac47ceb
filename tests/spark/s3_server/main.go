// An S3 server for tests: versitygw's gateway over a directory, on a port of the loopback that it prints.
//
// Its own command can do the same, and takes twice as long to build: it has other kinds of storage in it.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

// usage: s3_server DIRECTORY METADATA; the keys come by the usual variables. It ends with its standard input.
func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	fail(err)
	address := listener.Addr().String()
	fail(listener.Close())
	sidecar, err := meta.NewSideCar(os.Args[2])
	fail(err)
	files, err := posix.New(os.Args[1], sidecar, posix.PosixOpts{SideCarDir: os.Args[2], CopyObjectThreshold: 5 << 30})
	fail(err)
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		os.Stdin.Read(make([]byte, 1))
		stop()
		os.Exit(0)
	}()
	go tell(address)
	fail(embedgw.RunVersityGW(ctx, files, &embedgw.Config{
		RootUserAccess:    os.Getenv("AWS_ACCESS_KEY_ID"),
		RootUserSecret:    os.Getenv("AWS_SECRET_ACCESS_KEY"),
		Region:            "us-east-1",
		Ports:             []string{address},
		MaxConnections:    1000,
		MaxRequests:       1000,
		MultipartMaxParts: 10000,
		Quiet:             true,
	}))
}

// tell prints where the server is as soon as somebody answers there.
func tell(address string) {
	for {
		link, err := net.Dial("tcp", address)
		if err == nil {
			link.Close()
			fmt.Println("http://" + address)
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

//go:build tools

// Package tools pins the store of the API server.
package tools

import _ "go.etcd.io/etcd/server/v3"

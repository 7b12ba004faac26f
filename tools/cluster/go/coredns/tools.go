//go:build tools

// Package tools pins the name server of the cluster.
package tools

import _ "github.com/coredns/coredns"

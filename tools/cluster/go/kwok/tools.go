//go:build tools

// Package tools pins the simulator of nodes and pods.
package tools

import _ "sigs.k8s.io/kwok/cmd/kwok"

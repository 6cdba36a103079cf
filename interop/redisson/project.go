// Package redisson holds a small Java program around a Redisson client, with
// which the tests beside it and the benchmarks show how both get on, and
// compare. Package internal/redisson builds and runs it.
package redisson

import "embed"

// Project is the Maven project of the program.
//
//go:embed pom.xml src
var Project embed.FS

// Package replicas makes grants of permits wait until replicas of Redis know of them.
//
// Redis replicates after it has answered. If a master dies, what its replicas have not received
// is lost, and the replica that takes over grants it again. A Client whose calls go through
// [WaitReplicas] hands out nothing before its replicas have it:
//
//	client, err := throttle.New(replicas.WaitReplicas(rdb, 1, time.Second), throttle.Options{})
//
// It costs each call the round trip to the slowest of those replicas, which counts against the
// guard of a limit, and nothing is granted while too few of them answer.
package replicas

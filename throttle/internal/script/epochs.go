package script

// DecodeEpochs reads the reply of epoch.lua for this number of limiters.
func DecodeEpochs(reply any, members int) (now Remote, epochs []int64, err error) {
	text, ok := reply.(string)
	if !ok {
		return 0, nil, badReply("%T where a string was expected", reply)
	}
	d := decoder{rest: text}
	now = Remote(d.next())
	epochs = make([]int64, members)
	for i := range epochs {
		epochs[i] = d.next()
	}
	return now, epochs, d.err
}

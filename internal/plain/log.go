package plain

import (
	"go.uber.org/zap/buffer"
	"go.uber.org/zap/zapcore"
)

// Encoder returns an encoder that writes log lines as plain text, whatever is logged.
func Encoder(of zapcore.Encoder) zapcore.Encoder { return encoder{of} }

type encoder struct{ zapcore.Encoder }

// Clone implements zapcore.Encoder.
func (e encoder) Clone() zapcore.Encoder { return encoder{e.Encoder.Clone()} }

// EncodeEntry implements zapcore.Encoder. zap writes fields as JSON in either format, but a
// message unescaped.
func (e encoder) EncodeEntry(entry zapcore.Entry, fields []zapcore.Field) (*buffer.Buffer, error) {
	entry.Message = Text(entry.Message)
	line, err := e.Encoder.EncodeEntry(entry, fields)
	if err != nil {
		return nil, err
	}
	encoded := JSON(line.Bytes())
	line.Reset()
	_, err = line.Write(encoded)
	return line, err
}

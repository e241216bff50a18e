// Package proxy lets a program in any language be the handler of a worker: an
// HTTP service that is asked once for each message, or a command that is started
// once for each message.
//
// # The question
//
// The body of the message is the body of a POST request, or the standard input
// of the command. What is known about the message stands beside it, under the
// names of request headers or of environment variables:
//
//	X-Redrive-Queue           REDRIVE_QUEUE           where it was received
//	X-Redrive-Exchange        REDRIVE_EXCHANGE        of its first publish
//	X-Redrive-Routing-Key     REDRIVE_ROUTING_KEY
//	X-Redrive-Message-Id      REDRIVE_MESSAGE_ID
//	X-Redrive-Type            REDRIVE_TYPE            event type
//	X-Redrive-Schema-Version  REDRIVE_SCHEMA_VERSION
//	X-Redrive-Operation       REDRIVE_OPERATION       business identity; also Idempotency-Key
//	X-Redrive-Key             REDRIVE_KEY             ordering key
//	X-Redrive-Sequence        REDRIVE_SEQUENCE
//	X-Redrive-Trace-Id        REDRIVE_TRACE_ID
//	X-Redrive-Run             REDRIVE_RUN             1 for the first run
//	X-Redrive-Redelivered     REDRIVE_REDELIVERED     true or false
//	X-Redrive-Resumed         REDRIVE_RESUMED         true: an earlier run ended without a word
//	X-Redrive-Headers         REDRIVE_HEADERS         JSON object of the headers that are texts or numbers
//
// What is not known is not there. A value that is not printable ASCII, or has a
// percent sign, is percent-encoded (RFC 3986, section 2.1). Headers beyond 4 KiB
// are left out, and X-Redrive-Headers-Left-Out (REDRIVE_HEADERS_LEFT_OUT) counts
// them.
//
// # The answer
//
//	HTTP                                   command           means
//	2xx                                    exit 0            done
//	409                                    exit 80           duplicate: its effect is there already
//	408, 425, 5xx                          exit 75           transient
//	429; 503 with Retry-After              exit 69           systemic: no retry is spent
//	other 4xx                              exit 65           permanent
//	by class in the answer                 exit 81           business_rejection
//	by class in the answer                 exit 82           ambiguous_effect
//	by class in the answer                 exit 70           consumer_defect
//	1xx, 3xx                               –                 systemic: nobody follows redirects
//	–                                      other exits       unknown
//	no connection                          it does not start systemic
//	no answer within the time-out          it is ended       unknown, code "timeout"
//	the connection ends, or is not HTTP    a signal ends it  unknown
//
// The status or exit status is the error code. A JSON object as the answer, or
// as the last line of standard output, can say it better (RFC 9457 names are
// understood):
//
//	class           transient, systemic, permanent, business_rejection, ambiguous_effect, consumer_defect, duplicate
//	reason          as the policy knows it
//	code            error code, a text or a number
//	detail, title   for people; the first 512 bytes, masked
//	reference       where to look further; of a message that is done, its effect
//	retry_after     seconds
//
// A class there counts for more than the status, except that it cannot make
// 2xx or exit 0 a failure, nor a failure done. At most 64 KiB of an answer are
// read: a longer one, and one that is no such object, leave it to the status.
package proxy

import type { Channel } from 'rabbitmq-client'

/**
 * The client parses what is marked as JSON, and numbers beyond 2^53 are then no longer what was sent; text that is not UTF-8
 * suffers likewise. It has no option for that: what the messages are marked as is taken away before it looks. Bodies are
 * then always the bytes that came.
 */
export function raw(channel: Channel): Channel {
  const inner = channel as unknown as { _onHeader?(frame: { fields: { contentType?: string } }): void }
  const onHeader = inner._onHeader?.bind(channel)
  if (!onHeader) throw new Error('rabbitmq-client has changed: bodies would not be what was sent')
  inner._onHeader = frame => {
    delete frame.fields.contentType
    onHeader(frame)
  }
  return channel
}

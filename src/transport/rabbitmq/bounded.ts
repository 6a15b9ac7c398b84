import type { Socket } from 'node:net'
import type { Connection } from 'rabbitmq-client'

/** RabbitMQ's own frame_max; what we agree on with a server is less. */
const frameMost = 131_072

/**
 * The client waits for as many bytes as a frame says that it has, and holds them all; of more than 1 GiB Node's streams throw
 * where nobody catches, and the process ends. It has no option for that: such a read ends the connection instead.
 */
export function bounded(connection: Connection): Connection {
  const { _socket: socket } = connection as unknown as { _socket?: Socket }
  if (!socket) throw new Error('rabbitmq-client has changed: a frame could be of any size')
  const read = socket.read.bind(socket)
  socket.read = (size?: number): unknown => {
    // With its last byte, which says that the frame ends
    if (size === undefined || size <= frameMost + 1) return read(size)
    socket.destroy(Object.assign(new Error(`a frame of ${size} bytes`), { code: 'FRAME_ERROR' }))
    return null
  }
  return connection
}

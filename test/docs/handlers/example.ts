import { defineHandler, env, url, z } from 'ackbox/handler'

const owed = {
  transport: 'http',
  needCallback: true,
  receiptTimeout: '20s',
  retry: { times: 5, backoff: '500ms' }
} as const

// One downstream for each of the receivers in examples/receivers. The sceneType selects the receiver of a task.
export default defineHandler({
  messageCode: 'example.paid',
  body: z.object({ orderId: z.string(), note: z.string() }),
  downstreams: {
    'in-node': {
      ...owed,
      when: ({ task }) => task.sceneType === 'node',
      request: ({ body }) => ({ url: url`${env.NODE_RECEIVER}/orders/${body.orderId}` })
    },
    'in-java': {
      ...owed,
      when: ({ task }) => task.sceneType === 'java',
      request: ({ body }) => ({ url: url`${env.JAVA_RECEIVER}/orders/${body.orderId}` })
    },
    'in-python': {
      ...owed,
      when: ({ task }) => task.sceneType === 'python',
      request: ({ body }) => ({ url: url`${env.PYTHON_RECEIVER}/orders/${body.orderId}` })
    }
  }
})

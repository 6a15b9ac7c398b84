import { defineHandler, z } from 'ackbox/handler'

const retry = { times: 2, backoff: '200ms' } as const

/** Targets that do not exist, on servers that run. */
export default defineHandler({
  messageCode: 'nowhere',
  body: z.object({ only: z.string() }),
  downstreams: {
    'nowhere-rabbitmq': {
      transport: 'rabbitmq',
      request: ({ raw }) => ({ routingKey: 'nowhere', body: raw }),
      when: ({ body }) => body.only === 'rabbitmq',
      retry
    },
    'nowhere-kafka': {
      transport: 'kafka',
      request: ({ raw }) => ({ topic: 'nowhere', value: raw }),
      when: ({ body }) => body.only === 'kafka',
      retry
    },
    'nowhere-nats': {
      transport: 'nats',
      request: ({ raw }) => ({ subject: 'nowhere', payload: raw }),
      when: ({ body }) => body.only === 'nats',
      retry
    },
    'nowhere-rocketmq': {
      transport: 'rocketmq',
      request: ({ raw }) => ({ topic: 'nowhere', body: raw }),
      when: ({ body }) => body.only === 'rocketmq',
      retry
    }
  }
})

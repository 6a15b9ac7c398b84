// Receipts from queues: any message is stored, or refused with a log line. None may come again for ever.
import { headers as natsHeaders } from '@nats-io/transport-node'
import definition from 'rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb.js'
import { bytes } from '../mutate.ts'
import { Finding } from '../reader.ts'
import type { Subject } from '../child.ts'
import { faultOf, takeReceipt } from '../../src/api/receipt.ts'
import { takerFor } from '../../src/transport/receipt-readers.ts'
import { receiptOf as ofKafka } from '../../src/transport/kafka/receipts.ts'
import { receiptOf as ofNats } from '../../src/transport/nats/receipts.ts'
import { receiptOf as ofRabbit } from '../../src/transport/rabbitmq/receipts.ts'
import { receiptOf as ofRocketmq } from '../../src/transport/rocketmq/receipts.ts'
import type { ReceiptMessage } from '../../src/transport/receipts.ts'
import { receiptResults } from '../../src/domain/types.ts'
import { tokenHeader, tokens } from '../../src/domain/tokens.ts'

/** Bytes as latin1. Only RabbitMQ can have a header whose value is no text. */
export interface ReceiptInput {
  from: 'rabbitmq' | 'kafka' | 'nats' | 'rocketmq'
  headers: [name: string, value: unknown][]
  body: string
  /** The body came in two packets: the client then returns its bytes in another type. */
  isSplit: boolean
  /** Whether the token is one of ours. */
  isOurs: boolean
}

const check = tokens({ current: 'a secret of the fuzzer, long enough to be one' })

export const subject: Subject<null, ReceiptInput> = async () => ({
  async play(input) {
    let taken: Parameters<Parameters<typeof takeReceipt>[0]['receive']>[0] | undefined
    const logged: string[] = []
    const log = {
      info: () => {},
      debug: () => {},
      warn: (_: object, message: string) => void logged.push(message)
    }
    const receive: Parameters<typeof takeReceipt>[0]['receive'] = async receipt => {
      taken = receipt
      const issued = check.check(receipt.token, receipt.taskNo, new Date())
      if (!input.isOurs && issued === null) return 'unauthorized'
      return { kind: 'ok', taskNo: receipt.taskNo, status: 'HANDLED', applied: true }
    }
    const take = ({ body, headers }: ReceiptMessage, from: string) =>
      takeReceipt({ receive }, body, headers[tokenHeader], from)
    const receipt = receiptOf(input)
    const verdict = await takerFor({ take, faultOf, log }, { scheme: 'amqp', name: 'fuzzed' })(receipt)
    // No message may count as a fault of the service: it would come again for ever, and block the messages behind it.
    if (verdict !== 'done') throw new Finding('wrong', `${verdict}: ${logged.join()}`)
    const wasRefused = logged.includes('receipt.refused')
    if (taken === undefined) {
      if (!wasRefused) throw new Finding('wrong', 'it was neither taken nor refused')
      if (isReceipt(input.body)) throw new Finding('wrong', 'a receipt was refused unread')
      return
    }
    const { taskNo, messageCode, result, reason = '', data, token } = taken
    if (
      ![taskNo, messageCode].every(text => typeof text === 'string' && text.length > 0 && text.length <= 128)
    )
      throw new Finding('wrong', `taken for ${JSON.stringify([taskNo, messageCode])}`)
    if (!receiptResults.includes(result) || reason.length > 1_000)
      throw new Finding('wrong', `taken as ${result} for ${reason.length} characters of a reason`)
    if (data !== undefined && (data.length > 65_536 || !bytes(input.body).includes(data)))
      throw new Finding('wrong', 'its data are not what was sent')
    if (token !== undefined && typeof token !== 'string')
      throw new Finding('wrong', `a token of ${typeof token}`)
  }
})

function receiptOf({ from, headers, body: text, isSplit }: ReceiptInput): ReceiptMessage {
  const body = isSplit ? Uint8Array.from(bytes(text)) : bytes(text)
  switch (from) {
    case 'rabbitmq':
      return ofRabbit({ body, headers: Object.fromEntries(headers) })
    case 'kafka':
      return ofKafka({
        value: Buffer.from(body),
        headers: new Map(headers.map(([n, v]) => [Buffer.from(n), Buffer.from(String(v))]))
      })
    case 'rocketmq': {
      const message = new definition.Message().setBody(body)
      for (const [name, value] of headers) message.getUserPropertiesMap().set(name, String(value))
      return ofRocketmq(definition.Message.deserializeBinary(message.serializeBinary()))
    }
    case 'nats': {
      const made = natsHeaders()
      for (const [name, value] of headers) {
        try {
          made.append(name, String(value))
        } catch {
          // A header that the client itself refuses never arrives.
        }
      }
      return ofNats({ data: body, headers: made })
    }
  }
}

/** A minimal valid receipt. */
const isReceipt = (body: string): boolean => /^\{"taskNo":"t-\d+","messageCode":"order\.paid"\}$/.test(body)

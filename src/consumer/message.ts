// The task in a message.
import type { ReadMessage } from '../adapter/message.ts'

/** The task of a message with a valid signature. Only its id, its time and its text are signed. */
export interface ReceivedTask {
  /** The id of the delivery: the same on every attempt, and after an operator's redelivery. */
  webhookId: string
  taskNo: string
  messageCode: string
  sceneType: string
  attempt: number
  /** 1, and one more after each redelivery by an operator. */
  round: number
  /** Ackbox does not send the delivery after this time. */
  forgetAfter: Date
  /** Undefined: Ackbox expects no receipt. */
  callbackUrl: string | undefined
  callbackToken: string | undefined
  /** The payload as text. */
  text: string
  /** The payload as parsed JSON. Throws a SyntaxError if the payload is not JSON. */
  readonly body: unknown
  headers: ReadonlyMap<string, string>
}

/** Used if the header is missing, although Ackbox always sends it: the default of Ackbox. */
const forgetMs = 30 * 86_400_000

/** Decodes percent-encoded UTF-8. Returns other text unchanged, because the signature does not cover headers. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

export function taskOf({ headers, payload }: ReadMessage): ReceivedTask {
  const header = (name: string): string => headers.get(name) ?? ''
  const text = typeof payload === 'string' ? payload : Buffer.from(payload).toString()
  const forgetAfter = Date.parse(header('ackbox-forget-after'))
  return {
    webhookId: header('webhook-id'),
    taskNo: header('ackbox-task-no'),
    messageCode: header('ackbox-message-code'),
    sceneType: decoded(header('ackbox-scene-type')),
    attempt: Number(header('ackbox-attempt')) || 1,
    round: Number(header('ackbox-round')) || 1,
    forgetAfter: new Date(Number.isNaN(forgetAfter) ? Date.now() + forgetMs : forgetAfter),
    callbackUrl: headers.get('ackbox-callback-url'),
    callbackToken: headers.get('ackbox-callback-token'),
    text,
    get body() {
      return JSON.parse(text) as unknown
    },
    headers
  }
}

/**
 * For a probe: the `webhook-id` of the delivery that it asks about. Undefined for a delivery. The id counts, and not the header alone: only
 * the id is signed.
 */
export function askedAbout({ webhookId, headers }: ReceivedTask): string | undefined {
  if (!webhookId.startsWith('probe_') && !headers.has('ackbox-probe')) return undefined
  return webhookId.replace(/^probe_/, '').replace(/_\d+$/, '')
}

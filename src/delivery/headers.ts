import type { LoadedDelivery } from '../db/deliveries.ts'
import type { LoadedDownstream } from '../handler/define.ts'
import { signingSecret, tokenHeader, type Tokens } from '../domain/tokens.ts'
import { deliveryId } from '../domain/ids.ts'
import { signer, type Sign } from '../transport/sign.ts'

/** The headers that every transport carries, signed over exactly the payload that is sent. */
export interface DeliveryHeaders {
  headers(delivery: LoadedDelivery, payload: string | Uint8Array): Record<string, string>
}

export interface HeaderOptions {
  downstreams: readonly Pick<LoadedDownstream, 'name' | 'secrets'>[]
  secret: string
  secretPrevious: string | undefined
  tokens: Tokens
  publicUrl: string
  /** The host's clock is good enough: receivers allow minutes. */
  now?: () => Date
  /** The database's time: tokens are issued by it. */
  databaseNow?: () => Date
}

/** Signing secrets come from the handler. Otherwise they are derived from SECRET (and SECRET_PREVIOUS during a rotation). */
export function deliveryHeaders({
  downstreams,
  secret,
  secretPrevious,
  tokens,
  publicUrl,
  now = () => new Date(),
  databaseNow = now
}: HeaderOptions): DeliveryHeaders {
  const signers = new Map<string, Sign>(
    downstreams.map(({ name, secrets }) => [
      name,
      signer(
        secrets ?? [
          signingSecret(secret, name),
          ...(secretPrevious === undefined ? [] : [signingSecret(secretPrevious, name)])
        ]
      )
    ])
  )
  const callbackUrl = `${publicUrl}/callback`
  return {
    headers({ task, downstream, attempt, needsReceipt }, payload) {
      const id = deliveryId(task.id, downstream)
      const timestamp = Math.floor(now().getTime() / 1000)
      const headers: Record<string, string> = {
        'webhook-id': id,
        'webhook-timestamp': String(timestamp),
        'webhook-signature': signers.get(downstream)?.(id, timestamp, payload) ?? '',
        'ackbox-task-no': task.taskNo,
        'ackbox-message-code': task.messageCode,
        'ackbox-scene-type': task.sceneType,
        'ackbox-attempt': String(attempt)
      }
      if (task.traceparent !== null) headers['traceparent'] = task.traceparent
      if (needsReceipt) {
        headers['ackbox-callback-url'] = callbackUrl
        const issued = databaseNow()
        // Never older than its task, whatever the clocks say: it would look like the token of an earlier task.
        const at = issued < task.createdAt ? task.createdAt : issued
        headers[tokenHeader] = tokens.issue({ taskNo: task.taskNo, downstream, attempt, at })
      }
      return headers
    }
  }
}

/** Prefixes of a demo task's id. Each selects a behaviour of its downstream. A task with any other id is ordinary. */
export const kinds = ['POISON', 'SILENT', 'REFUSE', 'BROKEN', 'AGAIN', 'SHORT', 'LATE'] as const
export type Kind = (typeof kinds)[number]

export interface ReceivedAttempt {
  downstream: string
  owesReceipt: boolean
  kind: Kind | undefined
  webhookId: string
  attempt: number
}

export interface PlannedReceipt {
  /** The time after the answer. Negative: the receipt is sent before the answer. */
  afterMs: number
  result: 'HANDLED' | 'FAILED' | 'RETRY'
  reason?: string
  data?: unknown
}

export interface Behaviour {
  status: number
  headers?: Record<string, string>
  body: unknown
  delayMs: number
  receipts: PlannedReceipt[]
}

const ok = { status: 200, body: { code: 0 }, delayMs: 0, receipts: [] }

/**
 * The receiver's behaviour for one attempt. A pure function: the same seed gives the same behaviour, in any order of arrival.
 * Random failures happen only in the first two attempts, so that an ordinary task always ends HANDLED.
 */
export function behaviour(attempt: ReceivedAttempt, seed: number): Behaviour {
  const random = chance(`${seed} ${attempt.webhookId} ${attempt.attempt}`)
  const first = attempt.attempt === 1
  switch (attempt.kind) {
    case 'POISON':
      return { ...ok, status: 503, body: { error: 'out of order, on purpose' } }
    case 'REFUSE':
      return { ...ok, status: 410, body: { error: 'gone, on purpose' } }
    case 'SILENT':
      return ok
    case 'BROKEN':
      return receipt({ afterMs: 50, result: 'FAILED', reason: 'cannot be handled, on purpose' })
    case 'AGAIN':
      if (first) return receipt({ afterMs: 50, result: 'RETRY', reason: 'not now' })
      break
    case 'SHORT':
      if (first) return receipt({ afterMs: 50, result: 'HANDLED', data: { short: true } })
      break
    case 'LATE':
      if (first) return receipt({ afterMs: 4_500, result: 'HANDLED' })
      break
    case undefined:
      break
  }

  if (!attempt.kind && attempt.attempt <= 2) {
    if (random() < 0.04) return { ...ok, status: 503, body: { error: 'busy' } }
    if (attempt.downstream === 'warehouse' && random() < 0.01)
      return { ...ok, body: { code: 500, message: 'busy' } }
  }
  const delayMs = random() < 0.05 ? 300 + random() * 900 : random() * 15
  if (!attempt.owesReceipt) return { ...ok, delayMs }
  if (random() < 0.1) return { ...ok, delayMs, headers: { 'ackbox-result': 'HANDLED' } }

  const early = random() < 0.05
  const handled: PlannedReceipt = { afterMs: early ? -1 : 20 + random() * 200, result: 'HANDLED' }
  const twice = random() < 0.05
  return { ...ok, delayMs, receipts: twice ? [handled, { ...handled, afterMs: 400 }] : [handled] }

  function receipt(planned: PlannedReceipt): Behaviour {
    return { ...ok, receipts: [planned] }
  }
}

/** A small generator of numbers in [0, 1), seeded by a text: FNV-1a, then mulberry32. */
function chance(text: string): () => number {
  let state = 0x811c9dc5
  for (const letter of text) state = Math.imul(state ^ (letter.codePointAt(0) ?? 0), 0x01000193)
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296
  }
}

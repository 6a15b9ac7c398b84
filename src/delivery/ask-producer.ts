import type { ClaimedCheck } from '../db/prepared.ts'
import type { CheckAnswer } from '../domain/types.ts'
import type { LoadedHandler } from '../handler/loaded.ts'
import type { HttpRequest } from '../transport/http/http.ts'
import { signer, type Sign } from '../transport/sign.ts'
import type { Answer, Transport } from '../transport/types.ts'
import { derivedSecrets, signedHeaders } from './headers.ts'
import { inHookTime } from './hooks.ts'
import { JsonProblem, readJson } from '../json/reader.ts'
import { reasonOf } from '../runtime/errors.ts'
import { textOf } from '../runtime/text-of.ts'

interface AskProducerDeps {
  handlers: ReadonlyMap<string, Pick<LoadedHandler, 'checkBack' | 'dtm'>>
  transport: Transport<HttpRequest>
  secret: string
  secretPrevious: string | undefined
  /** Requests at once to the producer of one messageCode. */
  concurrency: number
  /** Aborts when the process can wait no longer. */
  cutOff: AbortSignal
  /** The database's time. */
  now: () => Date
}

/** The answer of the producer. `reason`: why there is none. */
export interface ProducerAnswer {
  answer: CheckAnswer
  reason: string | null
}

/** Runs a check: requests the state of a half message from its producer. No failure of the request makes it reject. */
export type Ask = (claim: ClaimedCheck) => Promise<ProducerAnswer>

/** The time limit of a check. The barrier of a producer answers within 2 s. */
export const checkTimeoutMs = 3_000

/** The name under which a secret is derived from SECRET. A downstream's name holds no colon. */
const checkSecretName = (messageCode: string): string => `check:${messageCode}`

const nothing = (reason: string): ProducerAnswer => ({ answer: 'NONE', reason: textOf(reason, 500) })
const members = new Set(['url', 'headers'])

export function producerAsker({
  handlers,
  transport,
  secret,
  secretPrevious,
  concurrency,
  cutOff,
  now
}: AskProducerDeps): Ask {
  const signers = new Map<string, Sign>()
  const signerOf = (messageCode: string): Sign => {
    const name = checkSecretName(messageCode)
    const sign = signers.get(name) ?? signer(derivedSecrets({ secret, secretPrevious }, name))
    signers.set(name, sign)
    return sign
  }

  return async claim => {
    const { task, check, preparedAt } = claim
    const { checkBack, dtm } = handlers.get(task.messageCode) ?? {}
    if (!checkBack) return nothing('no handler of this process has a checkBack')
    let request: HttpRequest
    try {
      const where = checked(await inHookTime('checkBack', checkBack({ task })))
      request = dtm ? { ...where, method: 'GET' } : { ...where, body: bodyOf(claim) }
    } catch (err) {
      return nothing(`checkBack threw: ${reasonOf(err)}`)
    }
    let state: CheckAnswer | undefined
    const outcome = await transport.send(
      request,
      {
        downstream: checkSecretName(task.messageCode),
        timeoutMs: checkTimeoutMs,
        limit: { concurrency },
        signal: cutOff,
        headers(payload) {
          const id = `check_${task.id}_${check}`
          return {
            ...signedHeaders(signerOf(task.messageCode), id, task, payload, now()),
            'ackbox-check': String(check),
            'ackbox-prepared-at': preparedAt.toISOString()
          }
        }
      },
      answer => (state = dtm ? dtm.checkAnswer(answer) : stateOf(answer)) !== undefined
    )
    // DTM also answers with 409 and 425. An answer that broke off does not count.
    if (dtm && state && outcome.kind === 'failed' && /^http_4\d\d$/.test(outcome.reason))
      return { answer: state, reason: null }
    if (outcome.kind === 'delivered' && state) return { answer: state, reason: null }
    if (outcome.kind === 'delivered' || outcome.reason === 'not_accepted')
      return nothing(dtm ? 'the answer is not in the form of DTM' : 'not answered with 200 and a state')
    return nothing(outcome.reason)
  }
}

const bodyOf = ({ task, check, preparedAt }: ClaimedCheck): string =>
  JSON.stringify({
    taskNo: task.taskNo,
    messageCode: task.messageCode,
    sceneType: task.sceneType,
    preparedAt: preparedAt.toISOString(),
    check
  })

/** JavaScript may return anything. */
function checked(made: unknown): Pick<HttpRequest, 'url' | 'headers'> {
  if (typeof made !== 'object' || made === null || !('url' in made))
    throw new TypeError('it returned no { url }')
  const other = Object.keys(made).find(name => !members.has(name))
  if (other !== undefined) throw new TypeError(`it has no member ${other}: there are url, headers`)
  const { url, headers = {} } = made as { url: unknown; headers?: object }
  // Read here, where an error of a getter is caught.
  // oxlint-disable-next-line typescript/no-base-to-string -- a URL, or the result of `url`
  return { url: String(url), headers: { ...headers } }
}

/**
 * Only 200 with one of the three states is an answer: any other response may come from another server. Of two members `state` nobody
 * can tell which one the producer means.
 */
function stateOf({ status, text }: Answer): CheckAnswer | undefined {
  const json = status === 200 ? strictly(text) : undefined
  if (typeof json !== 'object' || json === null || !('state' in json)) return undefined
  const { state } = json
  return state === 'COMMITTED' || state === 'ROLLED_BACK' || state === 'UNKNOWN' ? state : undefined
}

function strictly(text: string): unknown {
  try {
    return readJson(Buffer.from(text), 'plain').value
  } catch (err) {
    if (err instanceof JsonProblem) return undefined
    throw err
  }
}

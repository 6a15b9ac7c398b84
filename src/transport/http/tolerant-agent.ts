import { Agent, buildConnector } from 'undici'
import { contentDecoder } from './content-coding.ts'
import { tolerate } from './parser.ts'

/** An Agent of undici that reads what HTTP allows servers and proxies to send. */
export function tolerantAgent(options: Omit<Agent.Options, 'connect'> = {}): Agent {
  const connect = buildConnector({})
  return new Agent({
    ...options,
    connect: (target, callback) =>
      connect(target, (...made) => {
        callback(...made)
        if (made[1]) tolerate(made[1])
      })
  })
}

/** No answer of Ackbox's API is longer. */
const longestAnswer = 64 * 1_048_576
const decode = contentDecoder(longestAnswer)

/** The text of an answer, without the codings that a proxy added though none was asked for. */
export async function decodedText(
  headers: Record<string, string | string[] | undefined>,
  body: { arrayBuffer(): Promise<ArrayBuffer> }
): Promise<string> {
  const coded = Buffer.from(await body.arrayBuffer())
  const codings = [headers['content-encoding'] ?? []].flat().join().toLowerCase().split(',')
  const named = codings.map(coding => coding.trim()).filter(Boolean)
  return named.length === 0
    ? coded.toString()
    : (await decode(coded, named, { downstream: '', isWanted: () => true })).body.toString()
}

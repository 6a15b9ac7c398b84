// The forms of addresses in the settings.
import { z } from 'zod'
import { hostUrls } from '../db/hosts.ts'
import { unreadableUrl } from '../runtime/errors.ts'

const exampleOf = (protocol: string | undefined): string =>
  protocol === 'postgres:' ? 'postgres://user:password@host:5432/database' : 'http://host:8080/path'

/** Two checks, since a text that does start so would otherwise be told to. No message repeats the URL: it may hold a password. */
const readable = (text: z.ZodString, protocols: string[], urlsOf: (text: string) => string[]) =>
  text
    .refine(given => protocols.some(protocol => given.trim().toLowerCase().startsWith(protocol)), {
      error: `must be a URL that starts with ${protocols.map(p => `${p}//`).join(' or ')}`,
      abort: true
    })
    .refine(given => urlsOf(given).every(url => URL.canParse(url)), {
      error: unreadableUrl(exampleOf(protocols[0]))
    })

/** `URL` leaves a line break or a tab out in silence, but a header or a request line cannot hold it. */
export const address = (...protocols: string[]) =>
  readable(
    z
      .string()
      .trim()
      .refine(text => !/\s/.test(text), { error: 'has a space or a line break inside', abort: true }),
    protocols,
    text => [text]
  )

/** False for a URL whose user or password has a raw `%`, which every client would decode. */
export function isDecodable(url: string): boolean {
  try {
    decodeURIComponent(url)
    return true
  } catch {
    return false
  }
}
export const rawPercent = 'has a % that is not percent-encoding: write it as %25'
export const decodable = z.string().refine(isDecodable, { error: rawPercent, abort: true })

/** A URL to which a path is appended: in ASCII, as a header needs it, without a slash at the end. */
export const base = (...protocols: string[]) =>
  address(...protocols)
    .refine(
      text => !URL.canParse(text) || !/[?#]|^[^/]*\/\/[^/]*@/.test(text),
      'must have no user, password, query or fragment: /callback is appended to it'
    )
    .transform(text => (URL.canParse(text) ? new URL(text).href.replace(/\/+$/, '') : text))

/** One host or several, separated by commas. */
export const addresses = (...protocols: string[]) => readable(decodable, protocols, hostUrls)

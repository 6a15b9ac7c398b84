// The forms of addresses in the settings.
import { z } from 'zod'
import { hostUrls } from '../db/hosts.ts'

/** `URL` leaves a line break or a tab out in silence, but a header or a request line cannot hold it. */
export const address = (...protocols: string[]) =>
  z
    .string()
    .trim()
    .refine(text => !/\s/.test(text), { error: 'has a space or a line break inside', abort: true })
    .refine(text => URL.canParse(text) && protocols.includes(new URL(text).protocol), {
      error: `must be a URL that starts with ${protocols.map(p => `${p}//`).join(' or ')}`
    })

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
export const addresses = (...protocols: string[]) =>
  decodable.refine(
    text => hostUrls(text).every(url => URL.canParse(url) && protocols.includes(new URL(url).protocol)),
    { error: `must be a URL that starts with ${protocols.map(p => `${p}//`).join(' or ')}` }
  )

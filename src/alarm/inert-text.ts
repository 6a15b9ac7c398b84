import { cutText } from '../runtime/errors.ts'

/** What no reader sees, or what changes the order of what is read (bidi): https://www.unicode.org/reports/tr36/#Bidirectional_Text_Spoofing */
const invisible = /[\p{Default_Ignorable_Code_Point}\p{Cs}\uFFF9-\uFFFB]/gu
/** They would forge lines of the message. */
const breaks = /[\p{Cc}\p{Zl}\p{Zp}]+/gu
/** The dot before the last part of a host name. Some programs make a link of `host.example` alone. The others are read as dots in names. */
const nameDot = /(?<=[\p{L}\p{N}])[.．｡](?=\p{L}{2})|(?<=[a-z0-9])。(?=[a-z]{2})/giu

/**
 * A text of a producer or a downstream on one line, of which no chat and no mail program makes a link, a mention or markup, and in
 * which nothing is hidden. A host name is written as `host[.]example`, an address as `https[:]//…`.
 */
export function inertText(text: string, most: number): string {
  const beginning = text.slice(0, most * 4)
  const safe = beginning
    .replaceAll(invisible, '')
    .replaceAll(breaks, ' ')
    .replaceAll(/[<>@＜＞＠﹫]/g, '?')
    .replaceAll('](', '] (')
    .replaceAll(/:(?=[/\\]{2})|(?<=\b(?:mailto|tel|sms|javascript|data)):/gi, '[:]')
    .replaceAll(nameDot, '[.]')
  return safe.length > most || beginning.length < text.length ? `${cutText(safe, most)}…` : safe
}

const hidden = /[\p{Default_Ignorable_Code_Point}\p{Zl}\p{Zp}\uFFF9-\uFFFB\u007f-\u009f]/gu

/** JSON for a program: the values stay as they are, and where people see the JSON itself, nothing in it is hidden. */
export const visibleJson = (value: object): string =>
  JSON.stringify(value).replaceAll(hidden, char =>
    Array.from(
      { length: char.length },
      (_, at) => `\\u${char.charCodeAt(at).toString(16).padStart(4, '0')}`
    ).join('')
  )

// Formats the text of a body. Its numbers are never parsed and written again.

/** Adds line breaks and indents. Every number, text and member stays as written. Text that is not JSON stays unchanged. */
export function prettyJson(body: string): string {
  try {
    JSON.parse(body)
  } catch {
    return body
  }
  let text = ''
  let depth = 0
  const line = (): string => `\n${'  '.repeat(depth)}`
  for (const [token] of body.matchAll(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g)) {
    const isEmpty = text.endsWith('{') || text.endsWith('[')
    if (token === '}' || token === ']') {
      depth--
      text += isEmpty ? token : line() + token
      continue
    }
    if (isEmpty) text += line()
    if (token === '{' || token === '[') depth++
    text += token === ',' ? `,${line()}` : token === ':' ? ': ' : token
  }
  return text
}

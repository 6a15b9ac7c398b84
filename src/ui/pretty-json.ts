// Formats the text of a body. Its numbers are never parsed and written again.

export function isJson(text: string): boolean {
  try {
    JSON.parse(text)
    return true
  } catch {
    return false
  }
}

/** Adds line breaks and indents. Every number, text and member stays as written. Text that is not JSON stays unchanged. */
export function prettyJson(body: string): string {
  if (!isJson(body)) return body
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

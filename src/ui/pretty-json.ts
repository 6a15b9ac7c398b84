// Shows JSON text. Its numbers are never parsed and written again.

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

const inReceipt = JSON.stringify(['', 'deliveries', '', 'receipts', ''])

/**
 * The answer of a task, in which the `data` of each receipt is a text that holds its JSON. JSON.parse would change numbers such as
 * 1234567890123456789 or 1.10.
 */
export function withDataAsText(answer: string): string {
  /** The name of each open object or list in its parent. */
  const path: string[] = []
  let name = ''
  let dataFrom: number | undefined
  let copiedTo = 0
  let text = ''
  for (const { 0: token, index } of answer.matchAll(/"(?:[^"\\]|\\.)*"(?:\s*:)?|[{}[\],]/g)) {
    if (dataFrom !== undefined && path.length === 5 && (token === ',' || token === '}')) {
      text += answer.slice(copiedTo, dataFrom) + JSON.stringify(answer.slice(dataFrom, index))
      copiedTo = index
      dataFrom = undefined
    }
    if (token === '{' || token === '[') path.push(name)
    else if (token === '}' || token === ']') path.pop()
    name = ''
    if (token.endsWith(':')) {
      name = JSON.parse(token.slice(0, -1)) as string
      if (name === 'data' && JSON.stringify(path) === inReceipt) dataFrom = index + token.length
    }
  }
  return text + answer.slice(copiedTo)
}

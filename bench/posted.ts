const note = 'x'.repeat(120)

export const messageBodyOf = (taskNo: string, index: number | string): string =>
  `{"orderId":"${taskNo}","cents":${index},"note":"${note}"}`

/** What the producers of all benchmarks post. */
export const bodyOf = (taskNo: string, index: number, messageCode = 'bench'): string =>
  `{"taskNo":"${taskNo}","messageCode":"${messageCode}","sceneType":"",` +
  `"messageBody":${messageBodyOf(taskNo, index)}}`

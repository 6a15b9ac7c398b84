const note = 'x'.repeat(120)

/** What the producers of all benchmarks post. */
export const bodyOf = (taskNo: string, index: number, messageCode = 'bench'): string =>
  `{"taskNo":"${taskNo}","messageCode":"${messageCode}","sceneType":"","messageBody":` +
  `{"orderId":"${taskNo}","cents":${index},"note":"${note}"}}`

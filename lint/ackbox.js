// Rules of this project for oxlint. With typescript/no-base-to-string they keep reading a thrown value to src/runtime/text-of.ts:
// handlers throw anything, and the text of it must not throw again in a place where nothing catches it.

const texts = new Set(['message', 'stack', 'name'])
const isErrorType = type => {
  if (type?.type === 'TSIntersectionType') return type.types.some(isErrorType)
  const name = type?.typeName
  return /(?:Error|Exception)$/.test(name?.name ?? name?.right?.name ?? '')
}

const noRawError = {
  meta: {
    type: 'problem',
    messages: {
      check: 'Use isError of src/runtime/text-of.ts: instanceof throws for some values.',
      read: 'Use textOf of src/runtime/text-of.ts: what was caught may be any value.'
    }
  },
  create(context) {
    return {
      BinaryExpression(node) {
        if (node.operator === 'instanceof' && node.right.name === 'Error')
          context.report({ node, messageId: 'check' })
      },
      MemberExpression(node) {
        if (
          node.object.type === 'TSAsExpression' &&
          isErrorType(node.object.typeAnnotation) &&
          texts.has(node.property.name)
        )
          context.report({ node, messageId: 'read' })
      },
      VariableDeclarator(node) {
        if (
          node.id.type !== 'ObjectPattern' ||
          node.init?.type !== 'TSAsExpression' ||
          !isErrorType(node.init.typeAnnotation)
        )
          return
        if (node.id.properties.some(property => texts.has(property.key?.name)))
          context.report({ node, messageId: 'read' })
      }
    }
  }
}

export default { meta: { name: 'ackbox' }, rules: { 'no-raw-error': noRawError } }

"""An oracle for the emulated device, independent of it: the ISA manual's pseudocode evaluated in Python.

- floats: number formats and exactly rounded arithmetic on bit patterns
- values: typed values of the pseudocode and its operators
- syntax: tokeniser and parser of the pseudocode
- pcode: evaluator, and the errata of the manual's text
- functions: functions the pseudocode calls without defining them
- operands: parts that the pseudocode lacks: source and destination modifiers, denormal flushing
- memory: address rules of LDS, flat, buffer and scalar memory; memory_instructions applies them
- mfma: matrix instructions
- instruction: one whole instruction on the state of one wave (encoding: its fields)
- cases, scalar_cases, memory_cases: programs and states that test an opcode; numbers: their values
- suite: an opcode's cases, expected states, differences; machine: the emulator under test
"""

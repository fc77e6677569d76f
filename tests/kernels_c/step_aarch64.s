	.arch armv8-a
	.file	"step.inc"
	.text
	.align	2
	.global	step
	.type	step, %function
step:
.LFB0:
	adrp	x0, .LANCHOR0
	add	x0, x0, :lo12:.LANCHOR0
	ldr	d0, [x0, #:lo12:.LC0]
	cbz	w1, .L2
.L2:
	ret
	.size	step, .-step
	.section	.rodata
	.set	.LANCHOR0,. + 0
.LC0:
	.string	"step .L2"

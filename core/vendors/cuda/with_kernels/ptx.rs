//! The kernels' programs, as PTX. A kernel has one thread for each element of the result.

use std::fmt::Write as _;

use crate::layout::DIMS;

/// Threads of a block.
pub const THREADS: u32 = 128;

/// A kernel that computes every element of its result from the elements at the same place of other operands.
pub struct Elementwise {
    /// The function's name.
    pub name: &'static str,
    /// The operator that the kernel is of.
    pub operator: &'static str,
    /// Whether each operand is a tensor (else a number).
    pub operands: &'static [bool],
    /// Instructions that make `%f` of the operands' elements `%x0`, ..., and of `alpha`, with the predicate `%p`.
    body: &'static str,
    /// Whether `alpha` is a parameter.
    pub alpha: bool,
}

const fn elementwise(
    name: &'static str,
    operator: &'static str,
    operands: &'static [bool],
    alpha: bool,
    body: &'static str,
) -> Elementwise {
    Elementwise {
        name,
        operator,
        operands,
        body,
        alpha,
    }
}

const ADD: &str = "fma.rn.f32 %f, %alpha, %x1, %x0;";

/// Every element-wise kernel. A NaN stays a NaN.
pub const ELEMENTWISE: [Elementwise; 8] = [
    elementwise("add", "add", &[true, true], true, ADD),
    elementwise("add_number", "add", &[true, false], true, ADD),
    elementwise("number_add", "add", &[false, true], true, ADD),
    elementwise(
        "mul",
        "mul",
        &[true, true],
        false,
        "mul.rn.f32 %f, %x0, %x1;",
    ),
    elementwise(
        "mul_number",
        "mul",
        &[true, false],
        false,
        "mul.rn.f32 %f, %x0, %x1;",
    ),
    elementwise(
        "relu",
        "relu",
        &[true],
        false,
        "setp.le.f32 %p, %x0, 0f00000000;\n    selp.f32 %f, 0f00000000, %x0, %p;",
    ),
    elementwise("copy", "copy", &[true], false, "mov.f32 %f, %x0;"),
    elementwise("fill", "fill", &[false], false, "mov.f32 %f, %x0;"),
];

/// The name of the product of matrices. Its parameters: the number of elements of the result, its columns, the length of
/// a sum; then of the result and of both factors the address and the strides.
pub const MM: &str = "mm";

/// The program of all kernels.
pub fn module() -> String {
    let mut text = String::from(".version 6.0\n.target sm_70\n.address_size 64\n");
    for kernel in &ELEMENTWISE {
        write(&mut text, kernel).unwrap_or_else(|_| unreachable!("a String takes every text"));
    }
    text + PRODUCT
}

/// Parameters: the number of elements; the sizes; of the result and of every tensor the address and the strides; numbers.
fn write(text: &mut String, kernel: &Elementwise) -> std::fmt::Result {
    let tensors: Vec<String> = std::iter::once("out".to_owned())
        .chain(
            (0..kernel.operands.len())
                .filter(|&i| kernel.operands[i])
                .map(|i| format!("in{i}")),
        )
        .collect();
    let numbers = (0..kernel.operands.len()).filter(|&i| !kernel.operands[i]);
    let mut params = vec![".param .u32 count".to_owned()];
    params.extend((0..DIMS).map(|dim| format!(".param .u32 size{dim}")));
    for tensor in &tensors {
        params.push(format!(".param .u64 {tensor}"));
        params.extend((0..DIMS).map(|dim| format!(".param .u64 {tensor}_{dim}")));
    }
    params.extend(numbers.clone().map(|i| format!(".param .u32 number{i}")));
    params.extend(kernel.alpha.then(|| ".param .u32 factor".to_owned()));
    writeln!(
        text,
        ".visible .entry {}({})",
        kernel.name,
        params.join(", ")
    )?;
    text.push_str(
        "{
    .reg .pred %p;
    .reg .u32 %i, %n, %s, %d, %r;
    .reg .u64 %w, %t, %a<4>;
    .reg .f32 %f, %alpha, %x<2>;
    mov.u32 %i, %ctaid.x;
    mov.u32 %n, %ntid.x;
    mov.u32 %r, %tid.x;
    mad.lo.u32 %i, %i, %n, %r;
    ld.param.u32 %n, [count];
    setp.ge.u32 %p, %i, %n;
    @%p bra END;
",
    );
    write_addresses(text, &tensors)?;
    for (index, tensor) in tensors.iter().enumerate().skip(1) {
        let operand = &tensor["in".len()..];
        writeln!(text, "    ld.global.f32 %x{operand}, [%a{index}];")?;
    }
    for i in numbers {
        writeln!(
            text,
            "    ld.param.u32 %r, [number{i}];\n    mov.b32 %x{i}, %r;"
        )?;
    }
    if kernel.alpha {
        writeln!(
            text,
            "    ld.param.u32 %r, [factor];\n    mov.b32 %alpha, %r;"
        )?;
    }
    writeln!(
        text,
        "    {}\n    st.global.f32 [%a0], %f;\nEND:\n    ret;\n}}",
        kernel.body
    )
}

/// The address of this thread's element of every tensor, in `%a0`, `%a1`, ...
fn write_addresses(text: &mut String, tensors: &[String]) -> std::fmt::Result {
    for index in 0..tensors.len() {
        writeln!(text, "    mov.u64 %a{index}, 0;")?;
    }
    for dim in (0..DIMS).rev() {
        writeln!(text, "    ld.param.u32 %s, [size{dim}];")?;
        writeln!(text, "    rem.u32 %d, %i, %s;\n    div.u32 %i, %i, %s;")?;
        writeln!(text, "    cvt.u64.u32 %w, %d;")?;
        for (index, tensor) in tensors.iter().enumerate() {
            writeln!(text, "    ld.param.u64 %t, [{tensor}_{dim}];")?;
            writeln!(text, "    mad.lo.u64 %a{index}, %w, %t, %a{index};")?;
        }
    }
    for (index, tensor) in tensors.iter().enumerate() {
        writeln!(
            text,
            "    shl.b64 %a{index}, %a{index}, 2;\n    ld.param.u64 %t, [{tensor}];"
        )?;
        writeln!(
            text,
            "    cvta.to.global.u64 %t, %t;\n    add.u64 %a{index}, %t, %a{index};"
        )?;
    }
    Ok(())
}

/// One thread sums up the products of a row and a column, in order.
const PRODUCT: &str = "\
.visible .entry mm(.param .u32 count, .param .u32 columns, .param .u32 length,
    .param .u64 out, .param .u64 out_row, .param .u64 out_column,
    .param .u64 a, .param .u64 a_row, .param .u64 a_column,
    .param .u64 b, .param .u64 b_row, .param .u64 b_column)
{
    .reg .pred %p;
    .reg .u32 %i, %n, %r, %c, %k;
    .reg .u64 %row, %column, %t, %s, %a, %b, %o, %da, %db;
    .reg .f32 %f, %x, %y;
    mov.u32 %i, %ctaid.x;
    mov.u32 %n, %ntid.x;
    mov.u32 %r, %tid.x;
    mad.lo.u32 %i, %i, %n, %r;
    ld.param.u32 %n, [count];
    setp.ge.u32 %p, %i, %n;
    @%p bra END;
    ld.param.u32 %c, [columns];
    div.u32 %r, %i, %c;
    cvt.u64.u32 %row, %r;
    rem.u32 %r, %i, %c;
    cvt.u64.u32 %column, %r;
    ld.param.u64 %t, [out_row];
    mul.lo.u64 %o, %row, %t;
    ld.param.u64 %t, [out_column];
    mad.lo.u64 %o, %column, %t, %o;
    shl.b64 %o, %o, 2;
    ld.param.u64 %t, [out];
    cvta.to.global.u64 %t, %t;
    add.u64 %o, %t, %o;
    ld.param.u64 %t, [a_row];
    mul.lo.u64 %a, %row, %t;
    shl.b64 %a, %a, 2;
    ld.param.u64 %t, [a];
    cvta.to.global.u64 %t, %t;
    add.u64 %a, %t, %a;
    ld.param.u64 %t, [b_column];
    mul.lo.u64 %b, %column, %t;
    shl.b64 %b, %b, 2;
    ld.param.u64 %t, [b];
    cvta.to.global.u64 %t, %t;
    add.u64 %b, %t, %b;
    ld.param.u64 %da, [a_column];
    shl.b64 %da, %da, 2;
    ld.param.u64 %db, [b_row];
    shl.b64 %db, %db, 2;
    ld.param.u32 %k, [length];
    mov.f32 %f, 0f00000000;
NEXT:
    setp.eq.u32 %p, %k, 0;
    @%p bra STORE;
    ld.global.f32 %x, [%a];
    ld.global.f32 %y, [%b];
    fma.rn.f32 %f, %x, %y, %f;
    add.u64 %a, %a, %da;
    add.u64 %b, %b, %db;
    sub.u32 %k, %k, 1;
    bra NEXT;
STORE:
    st.global.f32 [%o], %f;
END:
    ret;
}
";

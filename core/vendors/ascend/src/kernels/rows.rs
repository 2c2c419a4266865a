//! The table of operators that are one function of CANN: `rows.txt`.
//!
//! A row begins with the operator and the arguments of torch's schema; the indented lines below it are calls, of which
//! the first one is made that fits and whose function this machine has. What stands for a parameter:
//!
//! | written | is |
//! |---|---|
//! | `self` | the argument, as the parameter's type wants it |
//! | `out`, `out1` | a result |
//! | `row(self)`, `row(out)` | a tensor that has at least one dimension |
//! | `dense(src)` | a tensor side by side in memory, copied there if it is not |
//! | `dense(out)` | a result side by side in memory, copied to where it belongs afterwards |
//! | `single(ord)` | a number in single precision |
//! | `scalar(other)` | an argument that is one element in host memory; other calls do not fit |
//! | `dims(dim)` | a list of dimensions; all of them where the list is empty or left out |
//! | `dim?0` | the argument, or this number where it was left out |
//! | `dtype(out)` | the type of elements of a result or an argument |
//! | `seed`, `offset` | the beginning of the random numbers |
//! | `0`, `1.5`, `true`, `"none"`, `[]`, `null` | themselves |
//!
//! `promote(self, other)` behind the operator: these arguments are computed in one type, that of torch's promotion, and
//! converted to it before. A function `aclnnInplaceX` with the parameters of `aclnnX` but the result is called where the
//! result is the argument `self`.

use std::ffi::CString;

use flagos_core::error::Result;

use super::call::{Call, Tensor, Value};
use super::dtype::{Category, DType};
use super::functions::{Function, Type, function};
use super::launch::{Arg, launch};
use super::objects::Number;
use super::view::{View, decline};

const TABLE: &str = include_str!("rows.txt");

/// An operator.
#[derive(Debug)]
pub(super) struct Row {
    /// `aten::add.Tensor`.
    pub(super) name: CString,
    num_arguments: usize,
    /// The places of arguments that are computed in one type.
    promoted: Vec<usize>,
    calls: Vec<Written>,
}

/// A call as the table has it.
#[derive(Debug)]
struct Written {
    function: &'static Function,
    sources: Vec<Source>,
    /// The argument that is the result, of a function that works in place.
    in_place: Option<usize>,
    /// Whether no number differs from call to call.
    repeats: bool,
}

#[derive(Debug, Clone, PartialEq)]
enum Source {
    Argument(usize),
    Or(usize, Literal),
    HostScalar(usize),
    Single(usize),
    Row(usize),
    RowOfOutput(usize),
    Dense(usize),
    DenseOfOutput(usize),
    Dims(usize),
    Output(usize),
    TypeOfOutput(usize),
    TypeOfArgument(usize),
    Seed,
    Offset,
    Literal(Literal),
}

#[derive(Debug, Clone, PartialEq)]
enum Literal {
    Null,
    Whole(i64),
    Real(f64),
    Flag(bool),
    Text(CString),
    NoNumbers,
}

/// The whole table.
pub(super) fn read() -> Vec<Row> {
    // A test reads the whole table.
    parse(TABLE).unwrap_or_else(|what| unreachable!("rows.txt: {what}"))
}

fn parse(table: &str) -> std::result::Result<Vec<Row>, String> {
    let mut rows: Vec<(Row, Vec<&str>)> = Vec::new();
    for line in table.lines() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let at = |what: String| format!("{what} in `{line}`");
        match line.strip_prefix("  ") {
            None => rows.push(parse_head(line).map_err(at)?),
            Some(call) => {
                let Some((row, arguments)) = rows.last_mut() else {
                    return Err(at("a call before the first operator".into()));
                };
                row.calls.extend(parse_call(call, arguments).map_err(at)?);
            }
        }
    }
    Ok(rows.into_iter().map(|(row, _)| row).collect())
}

/// `name(argument, ...)`, with the rest of the line.
fn parse_brackets(text: &str) -> std::result::Result<(&str, Vec<&str>, &str), String> {
    let (name, rest) = text.split_once('(').ok_or("no bracket")?;
    let mut depth = 1;
    let end = rest.find(|letter| {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        depth == 0
    });
    let end = end.ok_or("an open bracket")?;
    let (inside, rest) = (&rest[..end], &rest[end + 1..]);
    let arguments = match inside {
        "" => Vec::new(),
        inside => inside.split(", ").collect(),
    };
    Ok((name, arguments, rest.trim()))
}

fn parse_head(line: &str) -> std::result::Result<(Row, Vec<&str>), String> {
    let (name, arguments, rest) = parse_brackets(line)?;
    let mut promoted = Vec::new();
    if !rest.is_empty() {
        let (flag, names, "") = parse_brackets(rest)? else {
            return Err(format!("`{rest}` behind the operator"));
        };
        if flag != "promote" {
            return Err(format!("`{flag}` behind the operator"));
        }
        for name in names {
            promoted.push(place_of(name, &arguments)?);
        }
    }
    let name = CString::new(format!("aten::{name}")).map_err(|_| "a NUL")?;
    let row = Row {
        name,
        num_arguments: arguments.len(),
        promoted,
        calls: Vec::new(),
    };
    Ok((row, arguments))
}

fn place_of(name: &str, arguments: &[&str]) -> std::result::Result<usize, String> {
    let place = arguments.iter().position(|argument| *argument == name);
    place.ok_or_else(|| format!("no argument `{name}`"))
}

/// A call, and before it the one in place if CANN has that.
fn parse_call(line: &str, arguments: &[&str]) -> std::result::Result<Vec<Written>, String> {
    let (name, written, "") = parse_brackets(line)? else {
        return Err("something behind the call".into());
    };
    let found = function(name).ok_or_else(|| format!("functions.txt has no {name}"))?;
    let mut sources = Vec::with_capacity(written.len());
    for source in written {
        sources.push(parse_source(source, arguments)?);
    }
    let expected = found.parameters.len();
    if sources.len() != expected {
        return Err(format!("{} arguments of {expected}", sources.len()));
    }
    let repeats = !sources
        .iter()
        .any(|source| matches!(source, Source::Seed | Source::Offset));
    let mut calls = Vec::new();
    let rest = name.trim_start_matches("aclnn");
    if let (Some(in_place), Some(Source::Argument(0))) =
        (function(&format!("aclnnInplace{rest}")), sources.first())
    {
        let without: Vec<_> = sources
            .iter()
            .filter(|source| **source != Source::Output(0))
            .cloned()
            .collect();
        let alike = without.len() == in_place.parameters.len()
            && without.len() + 1 == sources.len()
            && in_place
                .parameters
                .iter()
                .zip(&without)
                .all(|(parameter, source)| fits(parameter.r#type, source));
        if alike {
            calls.push(Written {
                function: in_place,
                sources: without,
                in_place: Some(0),
                repeats,
            });
        }
    }
    calls.push(Written {
        function: found,
        sources,
        in_place: None,
        repeats,
    });
    Ok(calls)
}

/// Whether a source may stand for a parameter of the type, as far as the table tells.
fn fits(parameter: Type, source: &Source) -> bool {
    match source {
        Source::HostScalar(_) | Source::Single(_) => parameter == Type::Scalar,
        Source::Dims(_) => parameter == Type::Ints,
        Source::Output(_)
        | Source::Dense(_)
        | Source::DenseOfOutput(_)
        | Source::Row(_)
        | Source::RowOfOutput(_) => parameter == Type::Tensor,
        Source::TypeOfOutput(_) | Source::TypeOfArgument(_) | Source::Seed | Source::Offset => {
            parameter == Type::Word
        }
        Source::Argument(_) | Source::Or(..) | Source::Literal(_) => true,
    }
}

fn parse_source(text: &str, arguments: &[&str]) -> std::result::Result<Source, String> {
    if let Some(place) = output(text) {
        return Ok(Source::Output(place));
    }
    match text {
        "seed" => return Ok(Source::Seed),
        "offset" => return Ok(Source::Offset),
        _ => {}
    }
    if text.contains('(') {
        let (what, names, "") = parse_brackets(text)? else {
            return Err(format!("`{text}`"));
        };
        let [name] = names[..] else {
            return Err(format!("`{text}`"));
        };
        return Ok(match (what, output(name)) {
            ("scalar", _) => Source::HostScalar(place_of(name, arguments)?),
            ("row", Some(place)) => Source::RowOfOutput(place),
            ("row", None) => Source::Row(place_of(name, arguments)?),
            ("dense", Some(place)) => Source::DenseOfOutput(place),
            ("dense", None) => Source::Dense(place_of(name, arguments)?),
            ("single", _) => Source::Single(place_of(name, arguments)?),
            ("dims", _) => Source::Dims(place_of(name, arguments)?),
            ("dtype", Some(place)) => Source::TypeOfOutput(place),
            ("dtype", None) => Source::TypeOfArgument(place_of(name, arguments)?),
            _ => return Err(format!("`{what}`")),
        });
    }
    if let Some((name, otherwise)) = text.split_once('?') {
        return Ok(Source::Or(place_of(name, arguments)?, literal(otherwise)?));
    }
    match place_of(text, arguments) {
        Ok(place) => Ok(Source::Argument(place)),
        Err(unknown) => literal(text).map(Source::Literal).map_err(|_| unknown),
    }
}

/// `out`, `out1`, ...: the place of a result.
fn output(text: &str) -> Option<usize> {
    match text.strip_prefix("out")? {
        "" => Some(0),
        digits => digits.parse().ok(),
    }
}

fn literal(text: &str) -> std::result::Result<Literal, String> {
    if let Some(text) = text
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'))
    {
        return CString::new(text)
            .map(Literal::Text)
            .map_err(|_| "a NUL".into());
    }
    Ok(match text {
        "null" => Literal::Null,
        "true" => Literal::Flag(true),
        "false" => Literal::Flag(false),
        "[]" => Literal::NoNumbers,
        number => match (number.parse(), number.parse()) {
            (Ok(whole), _) => Literal::Whole(whole),
            (_, Ok(real)) => Literal::Real(real),
            _ => return Err(format!("`{text}` is nothing that is known")),
        },
    })
}

impl Row {
    /// Why no call of the row can be made on this machine; none if one can. A call in place serves some only.
    pub(super) fn missing(&self) -> Option<String> {
        let mut calls = self.calls.iter().filter(|call| call.in_place.is_none());
        let there = |call: &Written| call.function.phases().is_some();
        if calls.clone().any(there) {
            None
        } else {
            calls.next().map(|call| call.function.missing())
        }
    }

    /// Queues the first call that fits.
    pub(super) fn run(&self, call: &Call<'_>) -> Result<()> {
        if call.num_arguments() != self.num_arguments {
            return decline(format!(
                "torch's schema has {} arguments and the table of kernels {}",
                call.num_arguments(),
                self.num_arguments
            ));
        }
        let outputs = call.optional_outputs()?;
        if outputs.iter().flatten().count() > 0 && outputs.iter().flatten().all(View::is_empty) {
            return Ok(());
        }
        self.refuse_booleans(call)?;
        let common = self.common(call, &outputs)?;
        for written in &self.calls {
            if written.function.phases().is_some()
                && written.fits(call, &outputs, common, &self.promoted)?
            {
                return written.run(call, &outputs, common, &self.promoted);
            }
        }
        let absent = self
            .calls
            .iter()
            .find(|call| call.function.phases().is_none());
        decline(absent.map_or_else(
            || "no function of CANN takes these arguments".into(),
            |call| call.function.missing(),
        ))
    }

    /// Leaves calls to torch that it refuses, or computes otherwise, because of booleans, which are converted here.
    fn refuse_booleans(&self, call: &Call<'_>) -> Result<()> {
        let name = self.name.to_bytes();
        let of_numbers = [&b"aten::sub."[..], b"aten::rsub.", b"aten::pow."];
        if !of_numbers.iter().any(|prefix| name.starts_with(prefix)) {
            return Ok(());
        }
        for place in &self.promoted {
            let boolean = match call.value(*place)? {
                Value::Tensor(tensor) => tensor.dtype()? == DType::Bool,
                Value::Number(number) => matches!(number, Number::Bool(_)),
                _ => false,
            };
            if boolean {
                return decline("booleans among numbers");
            }
        }
        Ok(())
    }

    /// The type that the promoted arguments are computed in.
    fn common(&self, call: &Call<'_>, outputs: &[Option<View>]) -> Result<Option<DType>> {
        if self.promoted.is_empty() {
            return Ok(None);
        }
        let mut known = Promotion::default();
        for place in &self.promoted {
            match call.value(*place)? {
                Value::Tensor(tensor) => known.tensor(&tensor)?,
                Value::Number(number) => known.number(number)?,
                Value::None => {}
                _ => return decline(format!("argument {place} is no number")),
            }
        }
        let Some(common) = known.result()? else {
            return Ok(None);
        };
        // Functions of real numbers compute whole ones in the type of their results, and sums of booleans are whole.
        let result = outputs
            .first()
            .and_then(Option::as_ref)
            .map(|output| output.dtype);
        Ok(Some(match result {
            Some(result) if result.category() > common.category() => result,

            _ => common,
        }))
    }
}

/// torch's `result_type`: tensors with dimensions come first, then those without, then numbers, as far as their kinds
/// of numbers differ.
#[derive(Default)]
pub(super) struct Promotion {
    with_dims: Option<DType>,
    without_dims: Option<DType>,
    numbers: Option<DType>,
}

impl Promotion {
    pub(super) fn tensor(&mut self, tensor: &Tensor<'_>) -> Result<()> {
        let dtype = tensor.dtype()?;
        let slot = match (tensor.is_number(), tensor.0.num_dims) {
            (true, _) => return self.of_number(dtype.category()),
            (false, 0) => &mut self.without_dims,
            (false, _) => &mut self.with_dims,
        };
        *slot = Some(both(*slot, dtype)?);
        Ok(())
    }

    pub(super) fn number(&mut self, number: Number) -> Result<()> {
        self.of_number(match number {
            Number::Bool(_) => Category::Bool,
            Number::Whole(_) => Category::Whole,
            Number::Real(_) | Number::Single(_) => Category::Real,
            Number::Complex(..) => Category::Complex,
        })
    }

    fn of_number(&mut self, category: Category) -> Result<()> {
        self.numbers = Some(both(self.numbers, DType::of_number(category))?);
        Ok(())
    }

    pub(super) fn result(&self) -> Result<Option<DType>> {
        let weaker = over(self.without_dims, self.numbers)?;
        over(self.with_dims, weaker)
    }
}

fn both(known: Option<DType>, dtype: DType) -> Result<DType> {
    match known {
        None => Ok(dtype),
        Some(known) => match known.promoted(dtype) {
            Some(promoted) => Ok(promoted),
            None => decline(format!("torch does not promote {known} and {dtype}")),
        },
    }
}

/// The stronger type, unless the weaker one is of a later kind of numbers.
fn over(stronger: Option<DType>, weaker: Option<DType>) -> Result<Option<DType>> {
    Ok(match (stronger, weaker) {
        (Some(stronger), Some(weaker)) if weaker.category() > stronger.category() => {
            Some(both(Some(stronger), weaker)?)
        }
        (Some(stronger), _) => Some(stronger),
        (None, weaker) => weaker,
    })
}

impl Written {
    fn fits(
        &self,
        call: &Call<'_>,
        outputs: &[Option<View>],
        common: Option<DType>,
        promoted: &[usize],
    ) -> Result<bool> {
        if let Some(place) = self.in_place {
            let (Value::Tensor(tensor), Some(Some(output))) = (call.value(place)?, outputs.first())
            else {
                return Ok(false);
            };
            if tensor.is_on_host() || !tensor.view()?.is_same(output) {
                return Ok(false);
            }
            // What is computed in another type is no longer the tensor that is written.
            let converted =
                promoted.contains(&place) && common.is_some_and(|common| common != output.dtype);
            if converted {
                return Ok(false);
            }
        }
        for (parameter, source) in self.function.parameters.iter().zip(&self.sources) {
            let fits = match source {
                Source::HostScalar(place) => match call.value(*place)? {
                    Value::Tensor(tensor) => tensor.is_on_host(),
                    Value::Number(_) => true,
                    _ => false,
                },
                Source::Argument(place) => match (parameter.r#type, call.value(*place)?) {
                    (Type::Scalar, Value::Tensor(_)) => false,
                    (Type::Tensor, Value::Tensor(tensor)) if self.in_place == Some(*place) => {
                        !tensor.is_on_host()
                    }
                    _ => true,
                },
                _ => true,
            };
            if !fits {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn run(
        &self,
        call: &Call<'_>,
        outputs: &[Option<View>],
        common: Option<DType>,
        promoted: &[usize],
    ) -> Result<()> {
        let mut kept = Kept::default();
        let mut arguments = Vec::with_capacity(self.sources.len());
        // Lists that are made here live as long as the arguments.
        for (parameter, source) in self.function.parameters.iter().zip(&self.sources) {
            kept.prepare(call, parameter.r#type, source)?;
        }
        let mut lists = kept.lists.iter();
        let mut views = kept.views.iter();
        for (parameter, source) in self.function.parameters.iter().zip(&self.sources) {
            let common = match source {
                Source::Argument(place) | Source::HostScalar(place) if promoted.contains(place) => {
                    common
                }
                _ => None,
            };
            arguments.push(match needs(call, parameter.r#type, source)? {
                Need::List => Arg::Ints(lists.next().map_or(&[], Vec::as_slice)),
                Need::Views => Arg::Tensors(views.next().map_or(&[], Vec::as_slice)),
                Need::Nothing => argument(call, parameter.r#type, source, outputs, common)?,
            });
        }
        launch(call, self.function, &arguments, self.repeats)?;
        call.note_queued();
        for (source, argument) in self.sources.iter().zip(&arguments) {
            if let (Source::DenseOfOutput(place), Arg::Tensor(view)) = (source, argument) {
                if let Some(Some(output)) = outputs
                    .get(*place)
                    .filter(|output| output.is_some_and(|output| !output.is_same(view)))
                {
                    call.copy(*output, *view)?;
                }
            }
        }
        Ok(())
    }
}

/// Lists that are no part of the call.
#[derive(Default)]
struct Kept {
    lists: Vec<Vec<i64>>,
    views: Vec<Vec<Option<View>>>,
}

enum Need {
    Nothing,
    List,
    Views,
}

fn needs(call: &Call<'_>, parameter: Type, source: &Source) -> Result<Need> {
    Ok(match (parameter, source) {
        (Type::Ints, Source::Dims(_)) => Need::List,
        (Type::Ints, Source::Argument(place) | Source::Or(place, _)) => match call.value(*place)? {
            Value::Number(_) => Need::List,
            _ => Need::Nothing,
        },
        (Type::Tensors, Source::Argument(_)) => Need::Views,
        _ => Need::Nothing,
    })
}

impl Kept {
    fn prepare(&mut self, call: &Call<'_>, parameter: Type, source: &Source) -> Result<()> {
        let (Source::Dims(place) | Source::Argument(place) | Source::Or(place, _)) = source else {
            return Ok(());
        };
        match needs(call, parameter, source)? {
            Need::Nothing => {}
            Need::Views => self.views.push(call.tensors(*place)?),
            Need::List => {
                let dims = match call.value(*place)? {
                    Value::Ints(dims) => dims.to_vec(),
                    Value::Number(Number::Whole(dim)) => vec![dim],
                    _ => Vec::new(),
                };
                let all = dims.is_empty() && matches!(source, Source::Dims(_));
                self.lists.push(if all {
                    (0..call.tensor(0)?.sizes.len() as i64).collect()
                } else {
                    dims
                });
            }
        }
        Ok(())
    }
}

fn argument<'c>(
    call: &Call<'c>,
    parameter: Type,
    source: &'c Source,
    outputs: &[Option<View>],
    common: Option<DType>,
) -> Result<Arg<'c>> {
    let of_type = |dtype: DType| Arg::Word(dtype.acl() as u64);
    Ok(match source {
        Source::Output(place) => match outputs.get(*place) {
            Some(output) => Arg::from(*output),
            None => return decline(format!("there is no result {place}")),
        },
        Source::TypeOfOutput(place) => match outputs.get(*place) {
            Some(Some(output)) => of_type(output.dtype),
            _ => return decline(format!("there is no result {place}")),
        },
        Source::TypeOfArgument(place) => match call.value(*place)? {
            Value::Tensor(tensor) => of_type(tensor.dtype()?),
            _ => return decline(format!("argument {place} is no tensor")),
        },
        // A positive whole number of 63 bits: some functions take it as signed.
        Source::Seed => Arg::Word(call.random().0 >> 1),
        Source::Offset => Arg::Word(call.random().1),
        Source::HostScalar(place) => match call.value(*place)? {
            Value::Tensor(tensor) => Arg::Scalar(tensor.number()?),
            Value::Number(number) => Arg::Scalar(number),
            _ => return decline(format!("argument {place} is no number")),
        },
        Source::Row(place) => Arg::Tensor(row(call.tensor(*place)?)?),
        Source::RowOfOutput(place) => match outputs.get(*place) {
            Some(Some(output)) => Arg::Tensor(row(*output)?),
            _ => return decline(format!("there is no result {place}")),
        },
        Source::Dense(place) => Arg::Tensor(call.dense(call.tensor(*place)?)?),
        Source::DenseOfOutput(place) => match outputs.get(*place) {
            Some(Some(output)) if !output.is_contiguous() => {
                Arg::Tensor(call.temporary(output.dtype, &output.sizes)?)
            }
            Some(output) => Arg::from(*output),
            None => return decline(format!("there is no result {place}")),
        },
        Source::Single(place) => match call.value(*place)? {
            Value::Number(Number::Real(number)) => Arg::Scalar(Number::Single(number as f32)),
            Value::Number(Number::Whole(number)) => Arg::Scalar(Number::Single(number as f32)),
            _ => return decline(format!("argument {place} is no real number")),
        },
        Source::Literal(given) => literal_argument(parameter, given),
        Source::Or(place, otherwise) => match call.value(*place)? {
            Value::None => literal_argument(parameter, otherwise),
            value => value_argument(call, parameter, value, common)?,
        },
        Source::Argument(place) => value_argument(call, parameter, call.value(*place)?, common)?,
        Source::Dims(_) => Arg::Ints(&[]),
    })
}

/// The tensor with a dimension of one element where it has none.
fn row(view: View) -> Result<View> {
    if view.sizes.is_empty() {
        view.reshaped(&[1])
    } else {
        Ok(view)
    }
}

fn literal_argument(parameter: Type, literal: &Literal) -> Arg<'_> {
    match (literal, parameter) {
        (Literal::Null, _) => Arg::Null,
        (Literal::NoNumbers, Type::Floats) => Arg::Floats(&[]),
        (Literal::NoNumbers, _) => Arg::Ints(&[]),
        (Literal::Text(text), _) => Arg::Text(text),
        (Literal::Whole(number), Type::Word) => Arg::int(*number),
        (Literal::Whole(number), Type::Scalar) => Arg::Scalar(Number::Whole(*number)),
        (Literal::Whole(number), _) => Arg::Real(*number as f64),
        (Literal::Real(number), Type::Scalar) => Arg::Scalar(Number::Real(*number)),
        (Literal::Real(number), _) => Arg::Real(*number),
        (Literal::Flag(value), Type::Scalar) => Arg::Scalar(Number::Bool(*value)),
        (Literal::Flag(value), _) => Arg::flag(*value),
    }
}

fn value_argument<'c>(
    call: &Call<'c>,
    parameter: Type,
    value: Value<'c>,
    common: Option<DType>,
) -> Result<Arg<'c>> {
    Ok(match (parameter, value) {
        (Type::Tensor | Type::Scalar | Type::Ints | Type::Floats, Value::None) => Arg::Null,
        (Type::Tensor, Value::Tensor(tensor)) if tensor.is_on_host() => {
            let dtype = common.map_or_else(|| tensor.dtype(), Ok)?;
            Arg::Tensor(call.filled(tensor.number()?, dtype)?)
        }
        (Type::Tensor, Value::Tensor(tensor)) => {
            let view = tensor.view()?;
            Arg::Tensor(match common {
                Some(common) => call.cast(view, common)?,
                None => view,
            })
        }
        (Type::Tensor, Value::Number(number)) => match common {
            Some(common) => Arg::Tensor(call.filled(number, common)?),
            None => return decline("a number where CANN takes a tensor"),
        },
        (Type::Scalar, Value::Number(number)) => Arg::Scalar(number),
        (Type::Ints, Value::Ints(numbers)) => Arg::Ints(numbers),
        (Type::Floats, Value::Floats(numbers)) => Arg::Floats(numbers),
        (Type::Bools, Value::Bools(values)) => Arg::Bools(values),
        (Type::Word, Value::Number(Number::Whole(number))) => Arg::int(number),
        (Type::Word, Value::Number(Number::Bool(value))) => Arg::flag(value),
        (Type::Word, Value::DType(number)) => match DType::of_host(number) {
            Some(dtype) => Arg::Word(dtype.acl() as u64),
            None => return decline(format!("CANN has no type for torch's dtype {number}")),
        },
        (Type::Double | Type::Float, Value::Number(Number::Real(number))) => Arg::Real(number),
        (Type::Double | Type::Float, Value::Number(Number::Whole(number))) => {
            Arg::Real(number as f64)
        }
        (Type::Double | Type::Float, Value::Number(Number::Bool(value))) => {
            Arg::Real(f64::from(u8::from(value)))
        }
        (Type::Text, Value::Text(text)) => Arg::Text(text),
        (parameter, value) => {
            return decline(format!(
                "an argument of CANN's type {parameter:?} cannot be {}",
                kind(&value)
            ));
        }
    })
}

fn kind(value: &Value<'_>) -> &'static str {
    match value {
        Value::None => "left out",
        Value::Tensor(_) => "a tensor",
        Value::Tensors(_) => "a list of tensors",
        Value::Number(_) => "a number",
        Value::Text(_) => "a text",
        Value::Ints(_) => "a list of whole numbers",
        Value::Floats(_) => "a list of real numbers",
        Value::Bools(_) => "a list of booleans",
        Value::DType(_) => "a dtype",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_can_be_read_and_names_each_operator_once() {
        let rows = parse(TABLE).expect("every row is right");
        let mut seen = std::collections::HashSet::new();
        for row in &rows {
            assert!(!row.calls.is_empty(), "{:?} has no call", row.name);
            assert!(
                seen.insert(row.name.clone()),
                "{:?} is there twice",
                row.name
            );
            for call in &row.calls {
                for (parameter, source) in call.function.parameters.iter().zip(&call.sources) {
                    assert!(
                        fits(parameter.r#type, source),
                        "{:?}: {}",
                        row.name,
                        parameter.name
                    );
                }
            }
        }
        assert!(rows.len() > 200, "{}", rows.len());
    }

    #[test]
    fn a_function_in_place_comes_first() {
        let rows = parse("exp(self) promote(self)\n  aclnnExp(self, out)\n").expect("a row");
        let calls: Vec<_> = rows[0]
            .calls
            .iter()
            .map(|call| call.function.name)
            .collect();
        assert_eq!(calls, ["aclnnInplaceExp", "aclnnExp"]);
        assert_eq!(rows[0].calls[0].in_place, Some(0));
    }

    #[test]
    fn what_is_wrong_in_a_row_is_told() {
        for (table, what) in [
            ("  aclnnExp(self, out)", "before the first operator"),
            ("exp(self)\n  aclnnExp(self)", "1 arguments of 2"),
            ("exp(self)\n  aclnnExp(other, out)", "no argument `other`"),
            (
                "exp(self)\n  aclnnNoSuch(self, out)",
                "functions.txt has no aclnnNoSuch",
            ),
            ("exp(self) promote(x)", "no argument `x`"),
            ("exp(self", "an open bracket"),
        ] {
            let error = parse(table).expect_err(table);
            assert!(error.contains(what), "{table}: {error}");
        }
    }

    #[test]
    fn sources_are_what_they_say() {
        let source = |text| parse_source(text, &["self", "dim"]);
        assert_eq!(source("dim?-1"), Ok(Source::Or(1, Literal::Whole(-1))));
        assert_eq!(source("out1"), Ok(Source::Output(1)));
        assert_eq!(source("dtype(out)"), Ok(Source::TypeOfOutput(0)));
        assert_eq!(source("1e-5"), Ok(Source::Literal(Literal::Real(1e-5))));
        assert_eq!(source("[]"), Ok(Source::Literal(Literal::NoNumbers)));
        assert!(source("output").is_err());
    }
}

//! CANN's operators: their parameters, which `functions.txt` tells, and their addresses in the libraries.

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::OnceLock;

use flagos_vendor_kit::driver_library;

use super::dtype::DTypes;
use super::stub::MOST_REALS;

/// What a parameter is, by its C type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    /// `aclTensor*`.
    Tensor,
    /// `aclTensorList*`.
    Tensors,
    /// `aclScalar*`.
    Scalar,
    /// `aclScalarList*`.
    Scalars,
    /// `aclIntArray*`.
    Ints,
    /// `aclFloatArray*`.
    Floats,
    /// `aclBoolArray*`.
    Bools,
    /// Whole numbers of any width, `bool` and `aclDataType`.
    Word,
    /// `double`.
    Double,
    /// `float`.
    Float,
    /// `char*`.
    Text,
}

/// A parameter of a function.
#[derive(Debug)]
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) r#type: Type,
    /// Of tensors: the types of elements that CANN takes on Atlas A2 and A3.
    pub(super) dtypes: DTypes,
}

/// The addresses of both phases.
#[derive(Debug, Clone, Copy)]
pub(super) struct Phases {
    pub(super) prepare: *const (),
    pub(super) launch: *const (),
}

// SAFETY: addresses of functions in libraries that are never closed.
unsafe impl Send for Phases {}
// SAFETY: as above.
unsafe impl Sync for Phases {}

/// An operator of CANN.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) name: &'static str,
    pub(super) parameters: Vec<Parameter>,
    /// A number that no other function has.
    pub(super) number: usize,
    phases: OnceLock<Option<Phases>>,
}

/// What CANN 8.1 declares, and which types of elements its operators take.
const TABLE: &str = include_str!("functions.txt");

/// The libraries of operators, in the order in which a function is looked for. The first is of all versions; newer ones
/// have parts of it beside it, and older ones groups of their own.
const SONAMES: [&str; 11] = [
    "libopapi.so",
    "libopapi_math.so",
    "libopapi_nn.so",
    "libopapi_transformer.so",
    "libopapi_cv.so",
    "libaclnn_ops_infer.so",
    "libaclnn_ops_train.so",
    "libaclnn_math.so",
    "libaclnn_sparse.so",
    "libaclnn_fft.so",
    "libaclnn_rand.so",
];

impl Function {
    /// The function's addresses; none where no library of this machine has it.
    pub(super) fn phases(&self) -> Option<Phases> {
        *self.phases.get_or_init(|| {
            let prepare = symbol(&format!("{}GetWorkspaceSize", self.name))?;
            let launch = symbol(self.name)?;
            Some(Phases { prepare, launch })
        })
    }

    /// Why the function cannot be called.
    pub(super) fn missing(&self) -> String {
        match opened(0) {
            Ok(_) => format!("the CANN of this machine has no {}", self.name),
            Err(reason) => {
                format!("{reason}; install the operators (kernels) of CANN for this chip")
            }
        }
    }
}

/// One of the libraries, opened at its first use.
fn opened(place: usize) -> &'static Result<&'static libloading::Library, String> {
    static OPENED: [OnceLock<Result<&'static libloading::Library, String>>; SONAMES.len()] =
        [const { OnceLock::new() }; SONAMES.len()];
    OPENED[place].get_or_init(|| driver_library::open(&[SONAMES[place]]))
}

fn symbol(name: &str) -> Option<*const ()> {
    let name = CString::new(name).ok()?;
    (0..SONAMES.len()).find_map(|place| {
        let library = opened(place).as_ref().ok()?;
        // SAFETY: only the address is taken.
        let found = unsafe { library.get::<*const ()>(name.as_bytes_with_nul()) }.ok()?;
        Some(*found)
    })
}

/// The function of this name in the table.
pub(super) fn function(name: &str) -> Option<&'static Function> {
    static FUNCTIONS: OnceLock<HashMap<&'static str, Function>> = OnceLock::new();
    FUNCTIONS.get_or_init(read).get(name)
}

fn read() -> HashMap<&'static str, Function> {
    let lines = TABLE
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let read = lines.enumerate().map(|(number, line)| {
        let function = parse(line, number);
        // A test reads the whole table.
        let function =
            function.unwrap_or_else(|what| unreachable!("functions.txt: {what} in `{line}`"));
        (function.name, function)
    });
    read.collect()
}

/// A line: the function, then `name:type` or `name:type:dtypes` for each parameter.
fn parse(line: &'static str, number: usize) -> Result<Function, String> {
    let mut words = line.split_ascii_whitespace();
    let name = words.next().ok_or("no name")?;
    let parameters = words.map(parameter).collect::<Result<Vec<_>, _>>()?;
    let reals = parameters
        .iter()
        .filter(|parameter| matches!(parameter.r#type, Type::Double | Type::Float));
    if reals.count() > MOST_REALS {
        return Err("too many floating-point parameters".into());
    }
    Ok(Function {
        name,
        parameters,
        number,
        phases: OnceLock::new(),
    })
}

fn parameter(word: &'static str) -> Result<Parameter, String> {
    let mut parts = word.split(':');
    let (Some(name), Some(code)) = (parts.next(), parts.next()) else {
        return Err(format!("`{word}` is no parameter"));
    };
    let r#type = match code {
        "T" => Type::Tensor,
        "L" => Type::Tensors,
        "S" => Type::Scalar,
        "Z" => Type::Scalars,
        "A" => Type::Ints,
        "V" => Type::Floats,
        "M" => Type::Bools,
        "W" => Type::Word,
        "D" => Type::Double,
        "F" => Type::Float,
        "C" => Type::Text,
        _ => return Err(format!("`{code}` is no type")),
    };
    let dtypes = match parts.next() {
        None => DTypes::ALL,
        Some(letters) => {
            DTypes::parse(letters).ok_or_else(|| format!("`{letters}` are no dtypes"))?
        }
    };
    Ok(Parameter {
        name,
        r#type,
        dtypes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_can_be_read_and_names_each_function_once() {
        let mut seen = std::collections::HashSet::new();
        for (number, line) in TABLE.lines().enumerate() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let function =
                parse(line, number).unwrap_or_else(|what| panic!("line {number}: {what}"));
            assert!(function.name.starts_with("aclnn"), "{}", function.name);
            assert!(
                seen.insert(function.name),
                "{} is there twice",
                function.name
            );
        }
        assert!(seen.len() > 300, "{}", seen.len());
    }

    #[test]
    fn parameters_have_a_type() {
        assert!(parameter("self:T:fh").is_ok());
        for wrong in ["self", "self:Q", "self:T:!"] {
            assert!(parameter(wrong).is_err(), "{wrong}");
        }
    }
}

//! The registry: every operator, its slot and its implementations.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::implementation::{Availability, Implementation};
use super::namespace::Namespace;
use super::op::{OpId, OpName};
use super::slot::OpSlot;
use super::suggest::{overloads, suggest};
use crate::descriptions::Names;
use crate::nearest;
use crate::{Error, Result};

/// One operator.
#[derive(Debug, Clone)]
pub struct Op {
    /// The qualified name, `aten::add.Tensor`.
    pub name: Arc<str>,
    /// The slot that adapters read.
    pub slot: &'static OpSlot,
    /// Registered implementations, in the order of registration.
    pub implementations: Vec<Arc<Implementation>>,
    /// Whether the framework decomposes the operator into others as long as it has no implementation.
    pub composite: bool,
}

impl Op {
    /// Whether the framework decomposes the operator now, so that no route can apply to it.
    #[must_use]
    pub fn is_decomposed(&self) -> bool {
        self.composite && self.implementations.is_empty()
    }
}

/// Every operator known to the process, with its implementations.
///
/// Cloning costs a reference count per operator and shares the slots: the router tries a change on
/// a clone and keeps it only when it resolves.
#[derive(Debug, Clone)]
pub struct Registry {
    ops: Vec<Arc<Op>>,
    index: Arc<HashMap<Arc<str>, OpId>>,
    namespaces: Arc<BTreeMap<Arc<str>, Namespace>>,
    vendors: Arc<Names>,
    left: Arc<BTreeSet<String>>,
}

impl Default for Registry {
    fn default() -> Self {
        Self {
            ops: Vec::new(),
            index: Arc::default(),
            namespaces: Arc::default(),
            vendors: Names::built_in(),
            left: Arc::default(),
        }
    }
}

impl Registry {
    /// A registry without operators, which knows the vendors of this build.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The names of vendors that configuration may use before an implementation of theirs is registered.
    #[must_use]
    pub fn vendors(&self) -> &Arc<Names> {
        &self.vendors
    }

    /// Sets [`Self::vendors`].
    pub fn set_vendors(&mut self, names: Arc<Names>) {
        self.vendors = names;
    }

    /// Whether an operator that is not registered is one that the adapter leaves to its framework.
    #[must_use]
    pub fn is_left_to_framework(&self, name: &str) -> bool {
        self.left.contains(name)
    }

    /// Sets the qualified names of operators for which a line of a `backends.conf` is no error, but without effect.
    pub fn set_left_to_framework(&mut self, names: impl IntoIterator<Item = String>) {
        self.left = Arc::new(names.into_iter().collect());
    }

    /// The id of an operator, interning the name when it is new. A name without a namespace is an
    /// `aten` one.
    pub fn intern(&mut self, name: &str) -> Result<OpId> {
        if let Some(id) = self.index.get(name) {
            return Ok(*id);
        }
        let parsed = OpName::parse(name)?;
        let qualified = parsed.to_string();
        if let Some(id) = self.index.get(qualified.as_str()) {
            return Ok(*id);
        }
        let Ok(next) = u32::try_from(self.ops.len()) else {
            return Err(Error::internal("registry", "too many operators"));
        };
        let id = OpId(next);
        let name: Arc<str> = qualified.into();
        self.ops.push(Arc::new(Op {
            name: Arc::clone(&name),
            // Leaked on purpose, because adapters keep the address for as long as the process lives.
            slot: Box::leak(Box::default()),
            implementations: Vec::new(),
            composite: false,
        }));
        Arc::make_mut(&mut self.index).insert(name, id);
        Ok(id)
    }

    /// Declares the rules of a namespace. A later declaration replaces an earlier one.
    pub fn declare_namespace(&mut self, name: &str, namespace: Namespace) {
        Arc::make_mut(&mut self.namespaces).insert(name.into(), namespace);
    }

    /// The rules of a namespace.
    #[must_use]
    pub fn namespace(&self, name: &str) -> Namespace {
        self.namespaces.get(name).copied().unwrap_or_default()
    }

    /// Names of the namespaces that were declared.
    pub fn namespace_names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.namespaces.keys()
    }

    /// The rules of each declared namespace.
    pub fn namespaces(&self) -> impl Iterator<Item = &Namespace> {
        self.namespaces.values()
    }

    /// Changes whether an implementation can be used.
    pub fn set_availability(
        &mut self,
        op: &str,
        impl_id: &str,
        availability: Availability,
    ) -> Result<OpId> {
        let id = self.require(op)?;
        let at = self.position(id, impl_id, "set_availability")?;
        let op = Arc::make_mut(&mut self.ops[id.index()]);
        Arc::make_mut(&mut op.implementations[at]).availability = availability;
        Ok(id)
    }

    /// The index of an implementation among those of its operator.
    fn position(&self, id: OpId, impl_id: &str, operation: &'static str) -> Result<usize> {
        let op = self.op(id);
        if let Some(at) = op
            .implementations
            .iter()
            .position(|i| &*i.impl_id == impl_id)
        {
            return Ok(at);
        }
        let message = format!("`{}` has no implementation `{impl_id}`", op.name);
        let error = Error::invalid_argument(operation, message);
        let ids = op.implementations.iter().map(|i| &*i.impl_id);
        Err(match nearest::hint(impl_id, ids) {
            Some(hint) => error.with_hint(hint),
            None => error,
        })
    }

    /// Declares operators that the framework decomposes into others.
    pub fn declare_composite(&mut self, names: &[String]) -> Result<BTreeSet<OpId>> {
        let ids = names.iter().map(|name| self.intern(name));
        let ids: BTreeSet<_> = ids.collect::<Result<_>>()?;
        for id in &ids {
            Arc::make_mut(&mut self.ops[id.index()]).composite = true;
        }
        Ok(ids)
    }

    /// Registers an implementation of an operator. The same `impl_id` twice is an error.
    pub fn register(&mut self, op: &str, implementation: Arc<Implementation>) -> Result<OpId> {
        let id = self.intern(op)?;
        let op = Arc::make_mut(&mut self.ops[id.index()]);
        let impl_id = &implementation.impl_id;
        if op
            .implementations
            .iter()
            .any(|other| other.impl_id == *impl_id)
        {
            return Err(duplicate(&op.name, impl_id));
        }
        op.implementations.push(implementation);
        Ok(id)
    }

    /// Registers an implementation of every operator named, all or none.
    pub fn register_all(
        &mut self,
        names: &[String],
        implementation: &Arc<Implementation>,
    ) -> Result<BTreeSet<OpId>> {
        // Interned names are kept after an error: interning changes no route.
        let ids = names.iter().map(|name| self.intern(name));
        let ids: Vec<_> = ids.collect::<Result<_>>()?;
        let unique: BTreeSet<_> = ids.iter().copied().collect();
        let impl_id = &implementation.impl_id;
        let known = |id: &OpId| {
            let op = self.op(*id);
            op.implementations
                .iter()
                .any(|other| other.impl_id == *impl_id)
        };
        if let Some(id) = ids.iter().find(|id| known(id)) {
            return Err(duplicate(&self.op(*id).name, impl_id));
        }
        if unique.len() < ids.len() {
            let mut seen = BTreeSet::new();
            let twice = ids.iter().find(|id| !seen.insert(**id));
            let name = twice.map_or("", |id| &self.op(*id).name);
            return Err(duplicate(name, impl_id));
        }
        for id in ids {
            let op = Arc::make_mut(&mut self.ops[id.index()]);
            op.implementations.push(Arc::clone(implementation));
        }
        Ok(unique)
    }

    /// Removes an implementation.
    pub fn unregister(&mut self, op: &str, impl_id: &str) -> Result<OpId> {
        let id = self.require(op)?;
        let at = self.position(id, impl_id, "unregister")?;
        Arc::make_mut(&mut self.ops[id.index()])
            .implementations
            .remove(at);
        Ok(id)
    }

    /// The token of an implementation that is an object of an adapter's language.
    #[must_use]
    pub fn token(&self, op: &str, impl_id: &str) -> Option<u64> {
        let mut implementations = self.op(self.id(op)?).implementations.iter();
        let found = implementations.find(|i| &*i.impl_id == impl_id)?;
        found.callable.token()
    }

    /// The id of an operator; `None` when it was never interned.
    #[must_use]
    pub fn id(&self, name: &str) -> Option<OpId> {
        if let Some(id) = self.index.get(name) {
            return Some(*id);
        }
        if name.contains("::") {
            return None;
        }
        let qualified = OpName::parse(name).ok()?.to_string();
        self.index.get(qualified.as_str()).copied()
    }

    /// The id of an operator, or an error with the nearest name.
    pub fn require(&self, name: &str) -> Result<OpId> {
        match self.id(name) {
            Some(id) => Ok(id),
            None => Err(self.unknown(name)),
        }
    }

    fn unknown(&self, name: &str) -> Error {
        let error = Error::invalid_argument("operator", format!("unknown operator `{name}`"));
        match self.suggest(name) {
            Some(hint) => error.with_hint(hint),
            None => error.with_hint("`flagos ops` lists the known ones"),
        }
    }

    /// A hint at the operator that `name`, which is unknown, may mean.
    pub(crate) fn suggest(&self, name: &str) -> Option<String> {
        suggest(name, self.names())
    }

    /// Qualified names of the overloads of `namespace::base`, sorted.
    #[must_use]
    pub fn overloads(&self, namespace: &str, base: &str) -> Vec<&str> {
        overloads(namespace, base, self.names())
    }

    fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.ops.iter().map(|op| &*op.name)
    }

    /// Whether any operator of a namespace has been interned.
    #[must_use]
    pub fn is_populated(&self, namespace: &str) -> bool {
        self.ops.iter().any(|op| {
            let rest = op.name.strip_prefix(namespace);
            rest.is_some_and(|rest| rest.starts_with("::"))
        })
    }

    /// Whether any operator of a namespace has an implementation.
    #[must_use]
    pub fn is_implemented(&self, namespace: &str) -> bool {
        self.ops.iter().any(|op| {
            let rest = op.name.strip_prefix(namespace);
            !op.implementations.is_empty() && rest.is_some_and(|rest| rest.starts_with("::"))
        })
    }

    /// An operator by id.
    ///
    /// # Panics
    /// When the id comes from another registry.
    #[must_use]
    pub fn op(&self, id: OpId) -> &Op {
        &self.ops[id.index()]
    }

    /// Every operator, in the order of interning.
    pub fn iter(&self) -> impl Iterator<Item = (OpId, &Op)> {
        (0..).map(OpId).zip(self.ops.iter().map(AsRef::as_ref))
    }

    /// The number of operators.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Whether there is no operator.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    pub(crate) fn index(&self) -> &Arc<HashMap<Arc<str>, OpId>> {
        &self.index
    }
}

fn duplicate(op: &str, impl_id: &str) -> Error {
    let message = format!("`{op}` already has an implementation `{impl_id}`");
    Error::invalid_argument("register", message)
        .with_hint("unregister it first, or choose another id")
}

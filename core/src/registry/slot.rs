//! The slot of an operator, which an adapter reads on every call.
//!
//! # Publication order
//!
//! A reader needs `route`, and `impl_token` only if `route` is [`Route::Foreign`]. The writer (there
//! is one at a time, under the router's lock) stores the token first and the route afterwards with
//! release; the reader loads the route with acquire and the token afterwards. The token is never
//! cleared. Hence a reader that sees `Foreign` gets the token published with it or a later one, never an
//! earlier one and never zero. An adapter keeps a published token callable for as long as a
//! call that loaded it may be running.

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The adapter's action when an operator is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u32)]
pub enum Route {
    /// Run the adapter's own native path for the active vendor.
    Native = 0,
    /// Run the foreign object behind `impl_token`.
    Foreign = 1,
    /// Raise the plan's explanation, because no implementation is usable.
    Blocked = 2,
    /// Run the adapter's native path on the CPU, with copies where device memory is not the host's.
    CpuFallback = 3,
}

impl Route {
    /// The route with this number in a slot. Unknown numbers, of a newer core, are [`Route::Blocked`].
    #[must_use]
    pub const fn from_raw(raw: u32) -> Self {
        match raw {
            0 => Self::Native,
            1 => Self::Foreign,
            3 => Self::CpuFallback,
            _ => Self::Blocked,
        }
    }
}

/// The bit of [`OpSlot::flags`] that has every dispatch logged.
pub const FLAG_LOG_DISPATCH: u32 = 1;

/// One operator's counters and published route.
///
/// A slot is allocated once, never moved and never freed, because adapters keep its address. It is one cache
/// line, so that counting one operator never slows down another.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct OpSlot {
    /// Calls, counted by the adapter.
    pub calls: AtomicU64,
    /// CPU fallbacks, counted by [`Router::record_fallback`](crate::router::Router::record_fallback).
    pub fallbacks: AtomicU64,
    /// A [`Route`] as a number.
    pub route: AtomicU32,
    /// A combination of flags such as [`FLAG_LOG_DISPATCH`].
    pub flags: AtomicU32,
    /// The token of the object to call when the route is [`Route::Foreign`].
    pub impl_token: AtomicU64,
}

// The C table promises this layout to adapters compiled elsewhere.
#[cfg(not(loom))]
const _: () = {
    assert!(std::mem::size_of::<OpSlot>() == 64);
    assert!(std::mem::offset_of!(OpSlot, calls) == 0);
    assert!(std::mem::offset_of!(OpSlot, fallbacks) == 8);
    assert!(std::mem::offset_of!(OpSlot, route) == 16);
    assert!(std::mem::offset_of!(OpSlot, flags) == 20);
    assert!(std::mem::offset_of!(OpSlot, impl_token) == 24);
};

impl Default for OpSlot {
    fn default() -> Self {
        Self {
            calls: AtomicU64::new(0),
            fallbacks: AtomicU64::new(0),
            route: AtomicU32::new(Route::Native as u32),
            flags: AtomicU32::new(0),
            impl_token: AtomicU64::new(0),
        }
    }
}

impl OpSlot {
    /// Publishes a decision. Callers serialise their calls for one slot.
    pub fn publish(&self, decision: Decision) {
        if let Decision::Foreign(token) = decision {
            self.impl_token.store(token, Ordering::Release);
        }
        self.route.store(decision.route() as u32, Ordering::Release);
    }

    /// Sets the flags. No order is needed, because the flags are independent of the route.
    pub fn set_flags(&self, flags: u32) {
        self.flags.store(flags, Ordering::Relaxed);
    }

    /// The decision currently published.
    #[must_use]
    pub fn load(&self) -> Decision {
        match Route::from_raw(self.route.load(Ordering::Acquire)) {
            Route::Native => Decision::Native,
            Route::Foreign => Decision::Foreign(self.impl_token.load(Ordering::Acquire)),
            Route::Blocked => Decision::Blocked,
            Route::CpuFallback => Decision::CpuFallback,
        }
    }
}

/// A plan's decision about an operator, in the form of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// [`Route::Native`].
    Native,
    /// [`Route::Foreign`] with its token.
    Foreign(u64),
    /// [`Route::Blocked`].
    Blocked,
    /// [`Route::CpuFallback`].
    CpuFallback,
}

impl Decision {
    /// The route without the token.
    #[must_use]
    pub const fn route(self) -> Route {
        match self {
            Self::Native => Route::Native,
            Self::Foreign(_) => Route::Foreign,
            Self::Blocked => Route::Blocked,
            Self::CpuFallback => Route::CpuFallback,
        }
    }
}

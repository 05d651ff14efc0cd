//! For tests only: what a test needs to meet the real world without depending on its speed.
//!
//! - [`NatsServer`]: a real nats-server of the test's own, gone when the test ends.
//! - [`eventually()`]: wait for what must come true, with a deadline instead of a sleep.
//! - [`Link`]: a network link that can be blocked or cut.
//! - [`generators`]: valid cells and requests for property tests.
//!
//! Everything here panics when it fails, as assertions do: there is nothing a test could mend.

mod eventually;
pub mod generators;
mod link;
mod server;

pub use eventually::{DEFAULT_DEADLINE, Look, eventually, eventually_within};
pub use link::Link;
pub use nats_server::{Options, Port};
pub use server::{NatsServer, server_binary};

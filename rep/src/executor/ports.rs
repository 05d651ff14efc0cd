//! Ports for instances that ask for one.

use std::{collections::BTreeSet, net::TcpListener, sync::Mutex};

/// Ports handed out by any cell of this process and not returned yet: until the instance binds it, such a port looks
/// free to the system.
static TAKEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// A port that belongs to an instance until this is dropped.
#[derive(Debug)]
pub(crate) struct Port(u16);

impl Port {
    pub(crate) fn number(&self) -> u16 {
        self.0
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        taken(|taken| taken.remove(&self.0));
    }
}

/// A range of ports; each search starts after the last port found.
#[derive(Clone, Debug)]
pub(crate) struct Ports {
    first: u16,
    count: u32,
    next: u32,
}

impl Ports {
    /// Creates the range from `first` to `last`. Cells start searching at different ports, so that two programs on one
    /// machine seldom try the same one.
    pub(crate) fn new((first, last): (u16, u16), cell: &str) -> Self {
        let count = u32::from(last.saturating_sub(first)) + 1;
        let hash = cell.bytes().fold(0_u32, |hash, b| {
            hash.wrapping_mul(31).wrapping_add(b.into())
        });
        Self {
            first,
            count,
            next: hash % count,
        }
    }

    /// Returns a port that nothing listens on and that is not handed out; none if all are taken.
    pub(crate) fn take(&mut self) -> Option<Port> {
        for _ in 0..self.count {
            let offset = self.next;
            self.next = (self.next + 1) % self.count;
            let port = self.first + u16::try_from(offset).ok()?;
            if taken(|taken| taken.insert(port)) {
                let port = Port(port);
                if TcpListener::bind(("0.0.0.0", port.0)).is_ok() {
                    return Some(port);
                }
            }
        }
        None
    }
}

fn taken<R>(look: impl FnOnce(&mut BTreeSet<u16>) -> R) -> R {
    let mut taken = TAKEN
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    look(&mut taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_twice_none_in_use_and_back_when_dropped() {
        let busy = TcpListener::bind("127.0.0.1:0").unwrap();
        let number = busy.local_addr().unwrap().port();
        let range = (number.saturating_sub(3), number);
        let mut ports = Ports::new(range, "cell");
        let mut held = Vec::new();
        while let Some(port) = ports.take() {
            held.push(port);
        }
        let numbers: BTreeSet<u16> = held.iter().map(Port::number).collect();
        assert_eq!(numbers.len(), held.len());
        assert!(!numbers.contains(&number));
        if let Some(port) = held.pop() {
            let freed = port.number();
            drop(port);
            assert_eq!(ports.take().map(|p| p.number()), Some(freed));
        }
    }
}

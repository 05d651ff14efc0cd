//! Tests of the machine. The numbers `v1` to `v68` are those of a list of cases taken from Diego (D), HM9000 (H), Nomad
//! (N), Kubernetes (K), and of our own. Not tested: 19, which contradicts 20; 35 to 37, which are about tasks: a manager
//! does not keep them.

mod cells;
mod commands;
mod convergence;
mod crashes;
mod definition;
mod differences;
mod drains;
mod evidence;
mod lease;
mod random;
mod rollouts;
mod size;
mod stored;
mod world;

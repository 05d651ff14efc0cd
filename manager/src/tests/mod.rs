//! Tests of the machine. The numbers `v1` to `v68` are those of a list of cases taken from Diego (D), HM9000 (H), Nomad
//! (N), Kubernetes (K), and our own. Where they contradict each other (19 and 20, 32), our own choice is tested. 35 to
//! 37 are about tasks, which a manager does not keep running as it does apps: the tests check that it does not, and
//! what holds for apps instead.

mod cells;
mod commands;
mod convergence;
mod crashes;
mod definition;
mod differences;
mod drains;
mod evidence;
mod grants;
mod lease;
mod moves;
mod random;
mod rollouts;
mod size;
mod stored;
mod tasks;
mod world;

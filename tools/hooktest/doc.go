// Package hooktest has one test for every hook of the module: every place at which a program hands weir a
// function, or a value with methods of its own. A hook may panic, leave its goroutine, block, or call back into
// the object that calls it; the object stays usable, holds no lock meanwhile, and loses no permit.
//
// To add a hook, add a row to one of the tables rows…_test.go. TestHooks_AreComplete names the hooks that have
// none.
package hooktest

// Package kratos runs materpc and Kratos against each other: Kratos's servers,
// clients and middlewares with ours. It is a module of its own, so that what
// Kratos's middlewares need does not reach the core.
package kratos

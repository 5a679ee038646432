"""Opset upgrade: conversion of nodes from one opset to the next, by a table of operators' steps."""

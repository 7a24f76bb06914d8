{ pkgs }:
let
  python = pkgs.python311;
  cuda = pkgs.cudaPackages_12_8;

  runModules = modules: [
    modules.click
    modules.fastapi
    modules.httptools
    modules.jinja2
    modules.llguidance
    modules.msgspec
    modules.numpy
    modules.orjson
    modules.prometheus-client
    modules.pydantic
    modules.pyzmq
    modules.rich
    modules.structlog
    modules.tokenizers
    modules.uvicorn
    modules.uvloop
  ];

  developModules =
    modules:
    runModules modules
    ++ [
      modules.aiohttp
      modules.anthropic
      modules.httpx
      modules.hypothesis
      modules.jsonschema
      modules.llvmlite
      modules.openai
      modules.psutil
      modules.pygments
      modules.pygraphviz
      modules.pytest
      modules.pytest-timeout
      modules.safetensors
      modules.schemathesis
      (modules.toPythonModule (pkgs.scons.override { python3Packages = modules; }))
    ];
in
{
  runPython = python.withPackages runModules;
  developPython = python.withPackages developModules;
  sitePackages = python.sitePackages;

  build = [
    pkgs.futhark
    pkgs.git
    pkgs.terra
  ];

  check = [
    pkgs.clang-tools
    pkgs.ruff
    pkgs.valgrind
  ];

  cudaHome = pkgs.symlinkJoin {
    name = "cuda-home-12.8";
    paths = builtins.concatMap (package: package.all or [ package ]) [
      cuda.cuda_cccl
      cuda.cuda_cudart
      cuda.cuda_nvcc
      cuda.cuda_nvrtc
      cuda.libcublas
      cuda.nccl
    ];
  };

  cutlass = pkgs.cutlass;
}

{
  pkgs,
  source,
  python,
  name,
  targets,
  cudaHome ? null,
}:
let
  withCuda = cudaHome != null;
in
pkgs.stdenv.mkDerivation {
  pname = "glm-engine-${name}";
  version = builtins.head (
    builtins.match ".*VERSION = \"([^\"]*)\".*" (builtins.readFile ../python/glm_engine/version.py)
  );
  src = source;

  nativeBuildInputs = [
    pkgs.makeWrapper
    python
  ]
  ++ (
    if withCuda then
      [
        cudaHome
        pkgs.addDriverRunpath
      ]
    else
      [ ]
  );

  GLM_BUILD_CACHE = "off";
  CUDA_HOME = if withCuda then "${cudaHome}" else "";

  buildPhase = ''
    runHook preBuild
    scons -j "$NIX_BUILD_CORES" ${builtins.concatStringsSep " " targets}
    runHook postBuild
  '';

  installPhase = ''
    runHook preInstall
    mkdir -p "$out/lib/glm/build" "$out/lib/glm/native" "$out/share/glm"
    cp build/*.so "$out/lib/glm/build/"
    cp -r python "$out/lib/glm/"
    cp -r native/include "$out/lib/glm/native/"
    cp -r checkpoints "$out/share/glm/"
    makeWrapper ${python}/bin/python "$out/bin/glm" \
      --add-flags "-m glm_engine" \
      --set-default GLM_MODEL "$out/share/glm/checkpoints/capitals" \
      --set GLM_ENGINE_LIBRARY "$out/lib/glm/build/engine.so" \
      --prefix PYTHONPATH : "$out/lib/glm/python"
    runHook postInstall
  '';

  postFixup =
    if withCuda then
      ''
        addDriverRunpath "$out/lib/glm/build/libglm_cuda.so"
      ''
    else
      "";

  doInstallCheck = true;
  installCheckPhase = ''
    runHook preInstallCheck
    "$out/bin/glm" smoke --device cpu
    runHook postInstallCheck
  '';

  meta = {
    description = "Inference engine for the glm4_moe family";
    license = pkgs.lib.licenses.asl20;
    mainProgram = "glm";
    platforms = [ "x86_64-linux" ];
  };
}

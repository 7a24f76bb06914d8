{
  pkgs,
  source,
  tools,
}:
pkgs.stdenv.mkDerivation {
  pname = "glm-engine";
  version = builtins.head (
    builtins.match ".*VERSION = \"([^\"]*)\".*" (builtins.readFile ../python/glm_engine/version.py)
  );
  src = source;

  nativeBuildInputs = tools.build ++ [
    pkgs.makeWrapper
    tools.developPython
  ];
  dontUseSconsBuild = true;
  dontUseSconsInstall = true;

  PYTHONPATH = "${tools.developPython}/${tools.sitePackages}";
  GLM_BUILD_CACHE = "off";

  buildPhase = ''
    runHook preBuild
    scons -j "$NIX_BUILD_CORES" cpu engine
    runHook postBuild
  '';

  installPhase = ''
    runHook preInstall
    mkdir -p "$out/lib/glm/build" "$out/share/glm"
    cp build/*.so "$out/lib/glm/build/"
    cp -r python "$out/lib/glm/"
    cp -r checkpoints "$out/share/glm/"
    makeWrapper ${tools.runPython}/bin/python "$out/bin/glm" \
      --add-flags "-m glm_engine" \
      --set-default GLM_MODEL "$out/share/glm/checkpoints/capitals" \
      --set GLM_ENGINE_LIBRARY "$out/lib/glm/build/engine.so" \
      --prefix PYTHONPATH : "$out/lib/glm/python"
    runHook postInstall
  '';

  doInstallCheck = true;
  installCheckPhase = ''
    runHook preInstallCheck
    "$out/bin/glm" smoke
    runHook postInstallCheck
  '';

  meta = {
    description = "Inference engine for the glm4_moe family";
    license = pkgs.lib.licenses.asl20;
    mainProgram = "glm";
    platforms = [ "x86_64-linux" ];
  };
}
